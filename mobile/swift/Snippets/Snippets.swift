// The Swift of docs/ios.md: parsed by the tests, compiled by whoever has Xcode. mobile/tests/docs.rs compares.

import Foundation
import ZenEdge

func first() async throws {
    let router = try await Router.load()
    let outcome = try await router.route("write a python function to reverse a linked list")
    print(outcome.task, outcome.model ?? "no model fits", outcome.because)
}

func limits(_ router: Router, _ contract: String) async throws {
    let limits = Limits(maxCost: 0.002, exclude: ["gpt-4-1106-preview"])
    let outcome = try await router.route(contract, options: RouteOptions(limits: limits, deadlineMs: 50))
    for candidate in outcome.candidates {
        print(candidate.model, candidate.score as Any, candidate.whyNot as Any)
    }
}

func ownModel(_ folder: URL) async throws -> Router {
    var options = LoadOptions.thisDevice()
    options.background = .defer
    options.warmUp = true
    let model = FileSource.path(path: folder.appendingPathComponent("zen-nano-0.6b.gguf").path)
    return try await Router.load(.heads(model: model, folder: folder.path), options: options) { progress in
        print(progress.stage, progress.done, progress.total)
    }
}

func memory(_ folder: URL) async throws -> Router? {
    do {
        return try await Router.load(.folder(path: folder.path))
    } catch ZenEdgeError.OverBudget(_, let needs, _, let available, let budget) {
        print("needs \(needs), may take \(budget) of \(available) bytes")
        return nil
    }
}

func lifecycle() async throws -> (Router, RouterLifecycle) {
    let router = try await Router.load()
    let lifecycle = RouterLifecycle(router) // keep it as long as the router
    return (router, lifecycle)
}

func learning(_ router: Router) async throws {
    let outcome = try await router.route("Plan a week in Lisbon", options: RouteOptions(user: "me"))
    try await router.observe(outcome, quality: 1) // thumbs up
    let file = router.learning() // bytes without any text, for the app to keep
    try await router.restoreLearning(file)
    router.forgetUser("me")
}

func generate(_ router: Router) async throws {
    for try await piece in router.generate("Once upon a time", options: GenerateOptions(maxTokens: 64)) {
        print(piece, terminator: "")
    }
}

func choose(_ router: Router) async throws {
    for choice in try await router.choose("Is the sky blue? Answer:", among: [" yes", " no"]) {
        print(choice.option, choice.probability)
    }
}
