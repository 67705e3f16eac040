package ai.zenlm.edge

import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow

/**
 * A loaded router: which task a prompt is, and which model should answer it, on this device.
 *
 * ```kotlin
 * Router.load(PackSource.Folder(folder)).use { router ->
 *     val outcome = router.route("write a python function to reverse a linked list")
 *     println("${outcome.task} ${outcome.model}: ${outcome.because}")
 * }
 * ```
 *
 * Many coroutines may ask it at once: it answers one prompt after the other, each on as many threads as the device has fast
 * cores and its heat allows. A coroutine that is cancelled ends the work on its prompt. What goes wrong is a
 * [ZenEdgeException], one class for a cause.
 */
public class Router private constructor(private val engine: Engine) : AutoCloseable {
    public companion object {
        init {
            // The generated code compares itself with the library when it is told to, and only then: bindings of another build
            // would read nonsense.
            uniffiEnsureInitialized()
        }

        /**
         * Loads a pack, on a thread of its own. Files are mapped: their pages are clean, and the system may take them back.
         *
         * @param onProgress is called on the engine's own thread; what it throws is passed over. So is [onLog]'s.
         */
        public suspend fun load(
            source: PackSource,
            options: LoadOptions = LoadOptions(),
            onProgress: ((Progress) -> Unit)? = null,
            onLog: ((LogLevel, String) -> Unit)? = null,
        ): Router {
            val listener = if (onProgress == null && onLog == null) null else Listener(onProgress, onLog)
            return Router(Engine.load(source, options, listener, null))
        }

        /** What a router over a pack would take; nothing is loaded for it. */
        public fun footprint(source: PackSource, options: LoadOptions = LoadOptions()): Footprint =
            ai.zenlm.edge.footprint(source, options)
    }

    /** What was loaded. */
    public val about: About by lazy { engine.about() }

    /** Whether it was closed. */
    public val isClosed: Boolean get() = engine.isClosed()

    /** Decides which model should answer a prompt. */
    public suspend fun route(prompt: String, options: RouteOptions = RouteOptions()): Outcome =
        engine.route(prompt, options, null)

    /** What the heads read of a prompt: by default the last token's hidden state, not normalised. */
    public suspend fun embed(prompt: String, plainText: Boolean? = null): Embedding =
        engine.embed(prompt, plainText, null)

    /** A text that is being typed. */
    public fun session(options: RouteOptions = RouteOptions()): Session = Session(engine.session(), options)

    /**
     * Generates text after a prompt, piece by piece. Nothing runs until the flow is collected, and ending the collection ends
     * the work.
     */
    public fun generate(prompt: String, options: GenerateOptions = GenerateOptions()): Flow<String> =
        flow { collect(prompt, options) { emit(it) } }

    /**
     * Generates the answer to a chat's turns, by the model's own template; fails with [ZenEdgeException.Template] in a library that was
     * built without `--chat-template`.
     */
    public fun generate(messages: List<Message>, options: GenerateOptions = GenerateOptions()): Flow<String> =
        flow { collect(engine.render(messages), options) { emit(it) } }

    /** Generates, handing each piece of the text to [onPiece], and gives the whole with its tokens and why it ended. */
    public suspend fun generate(
        prompt: String,
        options: GenerateOptions = GenerateOptions(),
        onPiece: suspend (String) -> Unit,
    ): Generated = collect(prompt, options, onPiece)

    private suspend fun collect(
        prompt: String,
        options: GenerateOptions,
        onPiece: suspend (String) -> Unit,
    ): Generated {
        val generation = engine.generate(prompt, options, null)
        try {
            while (true) {
                val piece = generation.next() ?: return generation.finish()
                // Half a character, or what may begin a stop text, is held back.
                if (piece.text.isNotEmpty()) onPiece(piece.text)
            }
        } finally {
            generation.stop()
            generation.close()
        }
    }

    /**
     * How probable each of [options] is as what follows [prompt], in their order: probabilities that sum to 1. They are compared as
     * whole texts: one that another begins with ("A", "All") is never less probable than it, so end such ones alike ("A.", "All.").
     */
    public suspend fun choose(
        prompt: String,
        options: List<String>,
        how: ChooseOptions = ChooseOptions(),
    ): List<Choice> = engine.choose(prompt, options, how, null)

    /** Tells how an answer turned out; it may come late, in any order, or never. */
    public suspend fun observe(outcome: Outcome, reward: Reward): Unit = observe(outcome.id ?: "", reward)

    /** The same by the outcome's id, which outlives the process with the [learning]. */
    public suspend fun observe(outcomeId: String, reward: Reward): Unit = engine.observe(outcomeId, reward)

    /** The same by a quality from 0 to 1. */
    public suspend fun observe(outcome: Outcome, quality: Double): Unit = observe(outcome, Reward(quality))

    /** What was done and what is held. */
    public fun stats(): Stats = engine.stats()

    /** Whether the engine gives on this device what it should. [answers] is a pack's `selftest.json`. */
    public suspend fun selfTest(answers: FileSource? = null): SelfTestReport = engine.selfTest(answers)

    /** Measures how fast this device reads, decides and generates: the JSON of `zen-edge bench --json`. */
    public suspend fun bench(options: BenchOptions = BenchOptions()): String = engine.bench(options, null)

    /** Gives memory back. What was learned stays, and answers keep their bits. */
    public fun trim(level: TrimLevel): Unit = engine.trim(level)

    /** What `ComponentCallbacks2.onTrimMemory` asks for. */
    public fun onTrimMemory(level: Int): Unit = engine.onTrimMemory(level)

    /** Whether the app is seen. In the background one thread of the processor works, or none: [BackgroundPolicy]. */
    public fun setForeground(foreground: Boolean): Unit = engine.setForeground(foreground)

    /** How hot the device is. */
    public fun setThermal(thermal: Thermal): Unit = engine.setThermal(thermal)

    /** Forgets what a user's rewards taught. Whether there was anything. */
    public fun forgetUser(user: String): Boolean = engine.forgetUser(user)

    /** Forgets a conversation's model. Whether there was one. */
    public fun forgetConversation(conversation: String): Boolean = engine.forgetConversation(conversation)

    /** What was learned, as a file without any text of a prompt. */
    public fun learning(): ByteArray = engine.learning()

    /** Takes over such a file. What is wrong with it, where something is: then learning begins anew. */
    public suspend fun restoreLearning(learning: ByteArray): String? = engine.restoreLearning(learning)

    /**
     * Gives everything back; what is asked afterwards fails with [ZenEdgeException.Closed], and so does what is under way. Twice
     * is no fault.
     */
    override fun close(): Unit = engine.shutDown()
}

/** A text that is being typed: each update pays for what is new since the last one, and ends the work on older ones. */
public class Session internal constructor(private val typing: Typing, private val options: RouteOptions) {
    /** The text as it is now. Its answer is a draft. Fails with [ZenEdgeException.Superseded] where a newer text has come. */
    public suspend fun update(text: String): Outcome = typing.update(text, options)

    /** Ends the work on the last text, and forgets it. */
    public fun clear(): Unit = typing.clear()
}

private class Listener(
    private val progress: ((Progress) -> Unit)?,
    private val log: ((LogLevel, String) -> Unit)?,
) : RouterListener {
    override fun onProgress(progress: Progress) {
        this.progress?.invoke(progress)
    }

    override fun onLog(level: LogLevel, message: String) {
        log?.invoke(level, message)
    }
}
