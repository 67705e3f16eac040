import XCTest

@testable import ZenEdge

/// What only a device or a simulator can show: that the package loads, answers and gives back. The whole scenario runs in Rust,
/// Kotlin and Python (mobile/scenario).
final class RouterTests: XCTestCase {
    func testRoutesAndIsItself() async throws {
        let router = try await Router.load()
        let folder = try XCTUnwrap(Bundle.module.url(forResource: "pack", withExtension: nil))
        let report = try await router.selfTest(answers: .path(path: folder.appendingPathComponent("selftest.json").path))
        XCTAssertTrue(report.passed, "\(report)")
        let outcome = try await router.route("write a python function to reverse a linked list")
        XCTAssertEqual(outcome.task, .code)
        XCTAssertEqual(outcome.source, .learned)
    }

    func testWeightsComeBackWithTheSameBits() async throws {
        let router = try await Router.load()
        let before = try await router.embed("hello").vector
        router.trim(.weights)
        XCTAssertFalse(try router.stats().loaded)
        let after = try await router.embed("hello").vector
        XCTAssertEqual(before.map(\.bitPattern), after.map(\.bitPattern))
    }

    func testCancelledTaskThrows() async throws {
        let router = try await Router.load()
        let long = String(repeating: "A sentence that goes on. ", count: 200)
        let work = Task { try await router.route(long) }
        work.cancel()
        do {
            _ = try await work.value
        } catch is CancellationError {
            return
        }
        XCTFail("a cancelled task has an answer")
    }

    func testClosedIsClosed() async throws {
        let router = try await Router.load()
        router.close()
        router.close()
        do {
            _ = try await router.route("hello")
        } catch ZenEdgeError.Closed {
            return
        }
        XCTFail("a closed router has an answer")
    }

    func testGeneratesAStream() async throws {
        let router = try await Router.load()
        var pieces = 0
        for try await _ in router.generate("Once upon a time", options: GenerateOptions(maxTokens: 4)) {
            pieces += 1
        }
        XCTAssertLessThanOrEqual(pieces, 4)
    }
}
