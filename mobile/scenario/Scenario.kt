// The scenario that every language runs (mobile/scenario): its lines are the same in each, to the bit.
//
//     java … ScenarioKt PACK PROMPTS OUT

import ai.zenlm.edge.*
import com.sun.jna.NativeLibrary
import java.io.File
import java.io.RandomAccessFile
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.security.MessageDigest
import java.util.Collections
import kotlin.math.abs
import kotlin.system.exitProcess
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.supervisorScope

val LONG = "A sentence of the report that goes on for many pages. ".repeat(60)

fun bits(value: Float?) = value?.let { "%08x".format(it.toRawBits()) } ?: "-"

fun double(value: Double?) = value?.let { "%016x".format(it.toRawBits()) } ?: "-"

fun camel(value: Enum<*>) = value.name.split("_").joinToString("") { it.lowercase().replaceFirstChar(Char::uppercase) }

fun digest(vector: List<Float>): String {
    val bytes = ByteBuffer.allocate(4 * vector.size).order(ByteOrder.LITTLE_ENDIAN)
    vector.forEach(bytes::putFloat)
    return MessageDigest.getInstance("SHA-256").digest(bytes.array()).joinToString("") { "%02x".format(it) }
}

class Scenario(private val pack: String, private val prompts: List<String>) {
    val lines = mutableListOf<String>()
    private val folder = PackSource.Folder(pack)

    private fun say(vararg words: Any?) {
        lines += words.joinToString("\t")
    }

    private fun check(name: String, holds: Boolean) {
        if (!holds) throw AssertionError("$name does not hold")
        say("check", name)
    }

    private suspend inline fun <reified E : ZenEdgeException> fails(name: String, work: suspend () -> Any?): E {
        try {
            work()
        } catch (error: ZenEdgeException) {
            if (error !is E) throw AssertionError("$name: $error", error)
            say("fails", name, E::class.simpleName)
            return error
        }
        throw AssertionError("$name does not fail")
    }

    private suspend fun load(options: LoadOptions = LoadOptions()) =
        Router.load(folder, options.apply { threads = 2u })

    private fun outcome(place: Any, outcome: Outcome) {
        val chosen = outcome.candidates.filter { it.feasible }.take(3).map { "${it.model}=${double(it.score)}" }
        say(
            "route",
            place,
            camel(outcome.task),
            outcome.model ?: "-",
            camel(outcome.level),
            camel(outcome.source),
            outcome.because,
            bits(outcome.taskConfidence.calibrated),
            bits(outcome.confidence.calibrated),
            outcome.tokens,
            outcome.truncated,
            chosen.joinToString(","),
        )
    }

    private suspend fun loading() {
        val stages = Collections.synchronizedList(mutableListOf<LoadStage>())
        val logs = Collections.synchronizedList(mutableListOf<String>())
        val options = LoadOptions(threads = 2u, warmUp = true)
        Router.load(folder, options, { stages += it.stage }, { _, message -> logs += message }).use { router ->
            val about = router.about
            say("about", about.architecture, about.layers, about.hiddenSize, about.threads, about.tasks.joinToString(","))
        }
        val order = listOf(
            LoadStage.HEADS, LoadStage.WEIGHTS, LoadStage.TOKENIZER, LoadStage.HASH, LoadStage.WARM_UP, LoadStage.READY,
        )
        check("progress", stages.distinct() == order)
        check("logs", logs.any { it.startsWith("loaded") })
        Router.load(folder, options, onProgress = { error("a listener that fails") }).close()
        check("a listener that fails is passed over", true)

        fails<ZenEdgeException.Io>("no folder") { Router.load(PackSource.Folder("/no/such/folder")) }
        val wrong = PackSource.Heads(FileSource.Path("$pack/router_config.json"), pack)
        fails<ZenEdgeException.ModelDamaged>("a config as model") { Router.load(wrong) }
        val memory = MemorySnapshot(10_000_000u, 4_000_000_000u)
        val over = fails<ZenEdgeException.OverBudget>("budget") { load(LoadOptions(memory = memory)) }
        check("budget has figures", over.needs > over.budget && over.available == 10_000_000uL)
        val footprint = Router.footprint(folder)
        check("footprint", footprint.mapped && footprint.total > footprint.weights && footprint.weights > 0u)
        val token = CancelToken().also { it.cancel() }
        fails<ZenEdgeException.Cancelled>("load cancelled") { Engine.load(folder, LoadOptions(), null, token) }
    }

    /** The same bits from a path, from a part of an open file, and from memory. */
    private suspend fun sources() {
        val names = listOf("model.gguf", "heads.safetensors", "router_config.json", "catalog.yaml", "router_policy.yaml")
        val held = names.map { FileSource.Bytes(File(pack, it).readBytes(), it) }
        fun files(parts: List<FileSource>) = PackSource.Files(parts[0], parts[1], parts[2], parts[3], parts[4])

        val archive = File.createTempFile("zen-edge", null)
        // The JVM hides its descriptors; an Android app gets one with its asset.
        val libc = NativeLibrary.getInstance("c")
        val descriptor = libc.getFunction("open").invokeInt(arrayOf(archive.path, 0))
        val mapped = try {
            val described = RandomAccessFile(archive, "rw").use { file ->
                file.write("odd".toByteArray())
                held.map {
                    val offset = file.filePointer
                    file.write(it.bytes)
                    FileSource.Descriptor(descriptor, offset.toULong(), it.bytes.size.toULong(), it.name)
                }
            }
            Router.load(files(described), LoadOptions(threads = 2u))
        } finally {
            libc.getFunction("close").invokeInt(arrayOf(descriptor))
            archive.delete()
        }
        for (router in listOf(mapped, Router.load(files(held), LoadOptions(threads = 2u)))) {
            router.use { say("source", digest(it.embed(prompts[0]).vector)) }
        }
        val bad = listOf(FileSource.Descriptor(987_654, 0u, null, "asset")) + held.drop(1)
        fails<ZenEdgeException.Io>("no descriptor") { Router.load(files(bad)) }
    }

    private suspend fun answers() = load().use { router ->
        val report = router.selfTest(FileSource.Path("$pack/selftest.json"))
        check("self-test", report.passed && report.prompts > 0u)
        prompts.forEachIndexed { at, prompt ->
            outcome(at, router.route(prompt))
            say("embed", at, digest(router.embed(prompt).vector))
        }
        check("a known prompt", router.route(prompts[0]).cached)
        outcome("long", router.route(LONG.repeat(20)))
        outcome("blank", router.route(" "))
        outcome("cheap", router.route(prompts[0], RouteOptions(limits = Limits(maxCost = 0.0005))))
        val ran = router.route(prompts[0]).backend
        say("backend", ran.device, ran.threads, ran.adapter != null, ran.fallback != null)
        load(LoadOptions(device = Device.GPU)).use { asked ->
            val backend = asked.route(prompts[0]).backend
            // A library without a GPU says so; one with it has a GPU, or says why not.
            check("a GPU or why not", (backend.adapter == null) != (backend.fallback == null))
        }
        fails<ZenEdgeException.NoTokens>("embed nothing") { router.embed("") }
        val unknown = RouteOptions(limits = Limits(exclude = listOf("no-such-model")))
        fails<ZenEdgeException.UnknownModel>("unknown model") { router.route("hello", unknown) }

        // Many at once give what each gives alone.
        val alone = prompts.map { router.route(it) }
        router.trim(TrimLevel.CACHES)
        val asked = List(3) { prompts }.flatten()
        val together = coroutineScope { asked.map { async(Dispatchers.Default) { router.route(it) } }.awaitAll() }
        val same = together.withIndex().all { (at, two) ->
            val one = alone[at % alone.size]
            one.task == two.task && one.model == two.model && one.candidates == two.candidates
        }
        check("many at once", same)
    }

    private suspend fun cancelling() = load().use { router ->
        val token = CancelToken().also { it.cancel() }
        Engine.load(folder, LoadOptions(threads = 2u), null, null).use { engine ->
            fails<ZenEdgeException.Cancelled>("route cancelled") { engine.route(LONG, RouteOptions(), token) }
        }
        coroutineScope {
            val task = async(start = CoroutineStart.UNDISPATCHED) { router.route(LONG) }
            task.cancel()
            try {
                task.await()
                throw AssertionError("a cancelled coroutine has an answer")
            } catch (cancelled: CancellationException) {
                check("task cancelled", true)
            }
        }
        check("answers after it", router.route("hello").tokens > 0u)

        val session = router.session()
        session.update("Write a short story about a")
        val draft = session.update("Write a short story about a lighthouse")
        check("drafts reuse", draft.reused > 0u && draft.id == null)
        // Behind a long prompt the older text waits, and is stale when its turn comes.
        supervisorScope {
            val start = CoroutineStart.UNDISPATCHED
            val busy = async(start = start) { router.route("Busy. $LONG") }
            val older = async(start = start) { session.update("Write a short story about a lighthouse keeper") }
            val newer = async(start = start) { session.update("Write a short story about a lighthouse keeper's dog") }
            fails<ZenEdgeException.Superseded>("superseded") { older.await() }
            check("the newer text is answered", newer.await().tokens > 0u)
            busy.await()
        }
        session.clear()
    }

    private suspend fun lifecycle() = load(LoadOptions(background = BackgroundPolicy.DEFER)).use { router ->
        val before = digest(router.embed(prompts[0]).vector)
        for (level in TrimLevel.entries) {
            router.trim(level)
            say("trim", camel(level), router.stats().loaded, router.stats().cache.entries)
        }
        val after = digest(router.embed(prompts[0]).vector)
        check("weights come back", before == after && router.stats().reloads == 1uL)
        router.setForeground(false)
        fails<ZenEdgeException.Deferred>("background") { router.route("hello") }
        router.setForeground(true)
        for (thermal in listOf(Thermal.FAIR, Thermal.SERIOUS, Thermal.CRITICAL)) {
            router.setThermal(thermal)
            say("thermal", camel(thermal), router.stats().threads)
        }
        outcome("hot", router.route(prompts[0]))
        fails<ZenEdgeException.Deferred>("too hot to generate") { router.generate("Once").toList() }
        fails<ZenEdgeException.Deferred>("too hot to choose") { router.choose("Once", listOf(" a", " b")) }
        router.setThermal(Thermal.NOMINAL)

        val outcome = router.route(prompts[0], RouteOptions(user = "ann", conversation = "c"))
        check("an id for a reward", outcome.id != null)
        router.observe(outcome, 0.9)
        fails<ZenEdgeException.UnknownOutcome>("rewarded twice") { router.observe(outcome, 0.9) }
        fails<ZenEdgeException.UnknownOutcome>("no such outcome") { router.observe("what", Reward(0.9)) }
        val learning = router.learning()
        check("learning comes back", router.restoreLearning(learning) == null)
        check("damaged learning is told", router.restoreLearning("damaged".toByteArray()) != null)
        router.restoreLearning(learning)
        check("forgotten", router.forgetUser("ann") && !router.forgetUser("ann"))
        check("conversation forgotten", router.forgetConversation("c"))
        val stats = router.stats()
        say("stats", stats.routed, stats.reasons["too_hot"] ?: 0u, stats.users, stats.failed)
    }

    private suspend fun generating() = load().use { router ->
        val options = GenerateOptions(maxTokens = 12u)
        val pieces = mutableListOf<String>()
        val generated = router.generate("Once upon a time", options) { pieces += it }
        check("pieces make the text", generated.text.startsWith(pieces.joinToString("")))
        if (router.generate("Once upon a time", options).take(2).toList() != pieces.take(2)) {
            throw AssertionError("a flow gives other pieces")
        }
        say("generated", generated.promptTokens, camel(generated.reason), generated.ids.joinToString(","))
        Engine.load(folder, LoadOptions(threads = 2u), null, null).use { engine ->
            val generation = engine.generate("Once upon a time", GenerateOptions(maxTokens = 12u), null)
            generation.next()
            generation.finish()
            fails<ZenEdgeException.BadRequest>("finished twice") { generation.finish() }
            val stopped = engine.generate("Once upon a time", GenerateOptions(maxTokens = 12u), null)
            stopped.stop()
            check("stopped", stopped.next() == null)
            say("stopped", camel(stopped.finish().reason))
        }
        fails<ZenEdgeException.Template>("no template") {
            router.generate(listOf(Message("user", "hello"))).toList()
        }
    }

    private suspend fun choosing() {
        val router = load()
        val question = "Is the sky blue? Answer:"
        val options = listOf(" yes", " no", " perhaps not")
        val plain = router.choose(question, options)
        val free = router.choose(question, options, ChooseOptions(contentFree = "Is N/A? Answer:", byToken = true))
        for ((name, choices) in listOf("choice" to plain, "choice by token" to free)) {
            for (choice in choices) {
                val bits = listOf(choice.probability, choice.logLikelihood, choice.contentFree).map(::double)
                say(name, choice.option, *bits.toTypedArray(), choice.tokens)
            }
        }
        check("probabilities sum to one", abs(plain.sumOf { it.probability } - 1) < 1e-12)
        fails<ZenEdgeException.BadRequest>("no options") { router.choose(question, emptyList()) }
        fails<ZenEdgeException.BadRequest>("the same options") { router.choose(question, listOf(" a", " a")) }
        val token = CancelToken().also { it.cancel() }
        Engine.load(folder, LoadOptions(threads = 2u), null, null).use { engine ->
            fails<ZenEdgeException.Cancelled>("choose cancelled") {
                engine.choose(question, options, ChooseOptions(), token)
            }
        }
        router.close()
        fails<ZenEdgeException.Closed>("choose after close") { router.choose(question, options) }
    }

    private suspend fun closing() {
        val router = load()
        val session = router.session()
        val engine = Engine.load(folder, LoadOptions(threads = 2u), null, null)
        val generation = engine.generate("Once upon a time", GenerateOptions(), null)
        supervisorScope {
            val start = CoroutineStart.UNDISPATCHED
            val busy = async(start = start) { runCatching { router.route(LONG) } }
            val waiting = async(start = start) { router.route("Waiting. $LONG") }
            router.close()
            router.close()
            check("closed twice", router.isClosed)
            fails<ZenEdgeException.Closed>("waiting at the close") { waiting.await() }
            busy.await()
        }
        fails<ZenEdgeException.Closed>("route after close") { router.route("hello") }
        fails<ZenEdgeException.Closed>("embed after close") { router.embed("hello") }
        fails<ZenEdgeException.Closed>("session after close") { session.update("hello") }
        fails<ZenEdgeException.Closed>("generate after close") { router.generate("hello").toList() }
        engine.shutDown()
        fails<ZenEdgeException.Closed>("next after close") { generation.next() }
        fails<ZenEdgeException.Closed>("stats after close") { router.stats() }
        router.trim(TrimLevel.WEIGHTS)
        router.setForeground(false)

        // Twenty cycles leave nothing behind that grows: beside what the JVM takes for itself.
        suspend fun cycle() = load().use { it.route(prompts[0]) }
        repeat(3) { cycle() }
        val before = resident()
        repeat(20) { cycle() }
        System.gc()
        check("twenty cycles", resident() - before < 64L shl 20)
    }

    suspend fun run() {
        loading()
        sources()
        answers()
        cancelling()
        lifecycle()
        generating()
        choosing()
        closing()
    }
}

/** Bytes of this process that are in memory and belong to no file; 0 where the system does not say. */
fun resident(): Long = runCatching {
    val line = File("/proc/self/status").readLines().first { it.startsWith("RssAnon:") }
    line.split(Regex("\\s+"))[1].toLong() shl 10
}.getOrDefault(0)

fun main(arguments: Array<String>) {
    val (pack, prompts, out) = arguments
    val scenario = Scenario(pack, File(prompts).readLines())
    runBlocking { scenario.run() }
    File(out).writeText(scenario.lines.joinToString("\n", postfix = "\n"))
    println("${scenario.lines.size} lines")
    // JNA's cleaner is no daemon everywhere.
    exitProcess(0)
}
