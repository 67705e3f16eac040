// The Kotlin of docs/android.md that needs no Android: compiled with the scenario. mobile/tests/docs.rs compares.

import ai.zenlm.edge.BackgroundPolicy
import ai.zenlm.edge.GenerateOptions
import ai.zenlm.edge.Limits
import ai.zenlm.edge.LoadOptions
import ai.zenlm.edge.MemorySnapshot
import ai.zenlm.edge.PackSource
import ai.zenlm.edge.RouteOptions
import ai.zenlm.edge.Router
import ai.zenlm.edge.TrimLevel
import ai.zenlm.edge.ZenEdgeException
import kotlinx.coroutines.withTimeout

suspend fun first(folder: String) {
    Router.load(PackSource.Folder(folder)).use { router ->
        val outcome = router.route("write a python function to reverse a linked list")
        println("${outcome.task} ${outcome.model}: ${outcome.because}")
    }
}

suspend fun limits(router: Router, contract: String) {
    val options = RouteOptions(limits = Limits(maxCost = 0.002, exclude = listOf("gpt-4-1106-preview")), deadlineMs = 50.0)
    val outcome = withTimeout(10_000) { router.route(contract, options) }
    for (candidate in outcome.candidates) println("${candidate.model} ${candidate.score ?: candidate.whyNot}")
}

suspend fun memory(folder: String, snapshot: MemorySnapshot): Router? = try {
    Router.load(PackSource.Folder(folder), LoadOptions(memory = snapshot, background = BackgroundPolicy.DEFER))
} catch (error: ZenEdgeException.OverBudget) {
    println("needs ${error.needs}, may take ${error.budget} of ${error.available} bytes")
    null
}

suspend fun learning(router: Router) {
    val outcome = router.route("Plan a week in Lisbon", RouteOptions(user = "me"))
    router.observe(outcome, 1.0) // thumbs up
    val file = router.learning() // bytes without any text, for the app to keep
    router.restoreLearning(file)
    router.forgetUser("me")
}

suspend fun generate(router: Router) {
    router.generate("Once upon a time", GenerateOptions(maxTokens = 64u)).collect { piece -> print(piece) }
}

suspend fun choose(router: Router) {
    for (choice in router.choose("Is the sky blue? Answer:", listOf(" yes", " no"))) println("${choice.option} ${choice.probability}")
}

fun trim(router: Router) {
    router.trim(TrimLevel.WEIGHTS) // the next prompt loads them again
    println(router.stats().loaded)
}
