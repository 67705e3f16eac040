import SwiftUI
import ZenEdge

/// A prompt that is routed while it is typed. In Xcode: a new iOS app, this file in place of its own, and the package
/// target/mobile/swift/ZenEdge as a local dependency.
@main
struct ZenEdgeSample: App {
    var body: some Scene {
        WindowGroup {
            PromptView()
        }
    }
}

@MainActor
final class PromptModel: ObservableObject {
    @Published var outcome: Outcome?
    @Published var trouble: String?

    private var router: Router?
    private var session: Session?
    private var lifecycle: RouterLifecycle?

    func load() async {
        do {
            let router = try await Router.load()
            self.router = router
            session = router.session()
            lifecycle = RouterLifecycle(router)
        } catch {
            trouble = error.localizedDescription
        }
    }

    func type(_ text: String) async {
        do {
            outcome = try await session?.update(text)
            trouble = nil
        } catch ZenEdgeError.Superseded {
            // A newer text is on its way.
        } catch {
            trouble = error.localizedDescription
        }
    }
}

struct PromptView: View {
    @StateObject private var model = PromptModel()
    @State private var prompt = ""

    var body: some View {
        Form {
            TextField("Prompt", text: $prompt, axis: .vertical)
                .onChange(of: prompt) { text in
                    Task { await model.type(text) }
                }
            if let trouble = model.trouble {
                Text(trouble).foregroundColor(.red)
            }
            if let outcome = model.outcome {
                Section("\(String(describing: outcome.task)) → \(outcome.model ?? "no model fits")") {
                    Text(outcome.because)
                    Text("\(outcome.tokens) tokens, \(outcome.timings.total, specifier: "%.1f") ms on \(outcome.backend.isa)")
                }
                Section("All models") {
                    ForEach(outcome.candidates, id: \.model) { candidate in
                        LabeledContent(candidate.model) {
                            Text(candidate.score.map { String(format: "%.3f", $0) } ?? "–")
                        }
                    }
                }
            }
        }
        .task { await model.load() }
    }
}
