import Foundation

/// A loaded router: which task a prompt is, and which model should answer it, on this device.
///
/// ```swift
/// let router = try await Router.load()
/// let outcome = try await router.route("write a python function to reverse a linked list")
/// print(outcome.task, outcome.model ?? "no model fits", outcome.because)
/// ```
///
/// Many tasks may ask it at once: it answers one prompt after the other, each on as many threads as the device has fast cores
/// and its heat allows. A task that is cancelled ends the work on its prompt, and throws `CancellationError`. What goes wrong
/// is a `ZenEdgeError`, one case for a cause.
public final class Router: Sendable {
    private let engine: Engine

    private init(_ engine: Engine) {
        self.engine = engine
    }

    /// Loads a pack, on a thread of its own; without a source, the small one that comes with this package. Files are mapped: their
    /// pages are clean, and the system may take them back.
    ///
    /// - Parameters:
    ///   - onProgress: is called on the engine's own thread.
    ///   - onLog: the same. No message holds any text of a prompt.
    public static func load(
        _ source: PackSource? = nil,
        options: LoadOptions = .thisDevice(),
        onProgress: (@Sendable (Progress) -> Void)? = nil,
        onLog: (@Sendable (LogLevel, String) -> Void)? = nil
    ) async throws -> Router {
        let source = try source ?? PackSource.defaultPack()
        let listener = onProgress == nil && onLog == nil ? nil : Listener(progress: onProgress, log: onLog)
        return Router(try await cancellable { token in
            try await Engine.load(source: source, options: options, listener: listener, token: token)
        })
    }

    /// What a router over a pack would take; nothing is loaded for it.
    public static func footprint(_ source: PackSource, options: LoadOptions = .thisDevice()) throws -> Footprint {
        try ZenEdge.footprint(source: source, options: options)
    }

    /// What was loaded.
    public var about: About { engine.about() }

    /// Whether it was closed.
    public var isClosed: Bool { engine.isClosed() }

    /// Decides which model should answer a prompt.
    public func route(_ prompt: String, options: RouteOptions = RouteOptions()) async throws -> Outcome {
        try await cancellable { token in
            try await self.engine.route(prompt: prompt, options: options, token: token)
        }
    }

    /// What the heads read of a prompt: by default the last token's hidden state, not normalised.
    public func embed(_ prompt: String, plainText: Bool? = nil) async throws -> Embedding {
        try await cancellable { token in
            try await self.engine.embed(prompt: prompt, plainText: plainText, token: token)
        }
    }

    /// A text that is being typed.
    public func session(options: RouteOptions = RouteOptions()) -> Session {
        Session(engine.session(), options)
    }

    /// Generates text after a prompt, piece by piece. Ending the loop over the stream ends the work.
    public func generate(
        _ prompt: String,
        options: GenerateOptions = GenerateOptions()
    ) -> AsyncThrowingStream<String, Error> {
        stream { token in
            try await self.engine.generate(prompt: prompt, options: options, token: token)
        }
    }

    /// Generates the answer to a chat's turns, by the model's own template; `Template` in a library that was built without
    /// `--chat-template`.
    public func generate(
        _ messages: [Message],
        options: GenerateOptions = GenerateOptions()
    ) -> AsyncThrowingStream<String, Error> {
        stream { token in
            let prompt = try await self.engine.render(messages: messages)
            return try await self.engine.generate(prompt: prompt, options: options, token: token)
        }
    }

    /// How probable each of `options` is as what follows a prompt, in their order: probabilities that sum to 1. They are compared as
    /// whole texts: one that another begins with ("A", "All") is never less probable than it, so end such ones alike ("A.", "All.").
    public func choose(
        _ prompt: String,
        among options: [String],
        how: ChooseOptions = ChooseOptions()
    ) async throws -> [Choice] {
        try await cancellable { token in
            try await self.engine.choose(prompt: prompt, options: options, how: how, token: token)
        }
    }

    private func stream(
        _ begin: @escaping @Sendable (CancelToken) async throws -> Generation
    ) -> AsyncThrowingStream<String, Error> {
        AsyncThrowingStream { continuation in
            let token = CancelToken()
            let work = Task {
                do {
                    let generation = try await begin(token)
                    while let piece = try await generation.next() {
                        // Half a character, or what may begin a stop text, is held back.
                        if !piece.text.isEmpty {
                            continuation.yield(piece.text)
                        }
                    }
                    continuation.finish()
                } catch ZenEdgeError.Cancelled {
                    continuation.finish()
                } catch {
                    continuation.finish(throwing: error)
                }
            }
            continuation.onTermination = { _ in
                token.cancel()
                work.cancel()
            }
        }
    }

    /// Tells how an answer turned out: a quality from 0 to 1. It may come late, in any order, or never.
    public func observe(_ outcome: Outcome, quality: Double) async throws {
        try await observe(outcome.id ?? "", reward: Reward(quality: quality))
    }

    /// The same by the outcome's id, which outlives the process with the `learning()`, and with what the answer cost and took.
    public func observe(_ outcomeID: String, reward: Reward) async throws {
        try await engine.observe(outcome: outcomeID, reward: reward)
    }

    /// What was done and what is held.
    public func stats() throws -> Stats {
        try engine.stats()
    }

    /// Whether the engine gives on this device what it should. `answers` is a pack's `selftest.json`.
    public func selfTest(answers: FileSource? = nil) async throws -> SelfTestReport {
        try await engine.selfTest(answers: answers)
    }

    /// Measures how fast this device reads, decides and generates: the JSON of `zen-edge bench --json`.
    public func bench(options: BenchOptions = BenchOptions()) async throws -> String {
        try await cancellable { token in
            try await self.engine.bench(options: options, token: token)
        }
    }

    /// Gives memory back. What was learned stays, and answers keep their bits.
    public func trim(_ level: TrimLevel) {
        engine.trim(level: level)
    }

    /// What `didReceiveMemoryWarning` asks for.
    public func didReceiveMemoryWarning() {
        engine.onMemoryWarning()
    }

    /// Whether the app is seen. In the background one thread of the processor works, or none: `BackgroundPolicy`.
    public func setForeground(_ foreground: Bool) {
        engine.setForeground(foreground: foreground)
    }

    /// How hot the device is.
    public func setThermal(_ thermal: Thermal) {
        engine.setThermal(thermal: thermal)
    }

    /// Forgets what a user's rewards taught. Whether there was anything.
    @discardableResult
    public func forgetUser(_ user: String) -> Bool {
        engine.forgetUser(user: user)
    }

    /// Forgets a conversation's model. Whether there was one.
    @discardableResult
    public func forgetConversation(_ conversation: String) -> Bool {
        engine.forgetConversation(conversation: conversation)
    }

    /// What was learned, as a file without any text of a prompt.
    public func learning() -> Data {
        engine.learning()
    }

    /// Takes over such a file. What is wrong with it, where something is: then learning begins anew.
    @discardableResult
    public func restoreLearning(_ learning: Data) async throws -> String? {
        try await engine.restoreLearning(bytes: learning)
    }

    /// Gives everything back; what is asked afterwards throws `ZenEdgeError.Closed`, and so does what is under way. Twice is no
    /// fault.
    public func close() {
        engine.shutDown()
    }
}

/// A text that is being typed: each update pays for what is new since the last one, and ends the work on older ones.
public final class Session: Sendable {
    private let typing: Typing
    private let options: RouteOptions

    fileprivate init(_ typing: Typing, _ options: RouteOptions) {
        self.typing = typing
        self.options = options
    }

    /// The text as it is now. Its answer is a draft. Throws `ZenEdgeError.Superseded` where a newer text has come.
    public func update(_ text: String) async throws -> Outcome {
        try await typing.update(text: text, options: options)
    }

    /// Ends the work on the last text, and forgets it.
    public func clear() {
        typing.clear()
    }
}

extension PackSource {
    /// The pack that comes with this package: a small backbone with its heads.
    public static func defaultPack() throws -> PackSource {
        guard let folder = Bundle.module.url(forResource: "pack", withExtension: nil) else {
            throw ZenEdgeError.Io(detail: "the package's resources have no folder named pack: build it with `cargo xtask xcframework`")
        }
        return .folder(path: folder.path)
    }
}

/// Calls `body` so that cancelling the task ends the work: the generated code itself waits for it.
private func cancellable<T>(_ body: (CancelToken) async throws -> T) async throws -> T {
    let token = CancelToken()
    return try await withTaskCancellationHandler {
        do {
            return try await body(token)
        } catch ZenEdgeError.Cancelled where Task.isCancelled {
            throw CancellationError()
        }
    } onCancel: {
        token.cancel()
    }
}

private final class Listener: RouterListener {
    private let progress: (@Sendable (Progress) -> Void)?
    private let log: (@Sendable (LogLevel, String) -> Void)?

    init(progress: (@Sendable (Progress) -> Void)?, log: (@Sendable (LogLevel, String) -> Void)?) {
        self.progress = progress
        self.log = log
    }

    func onProgress(progress: Progress) throws {
        self.progress?(progress)
    }

    func onLog(level: LogLevel, message: String) throws {
        log?(level, message)
    }
}
