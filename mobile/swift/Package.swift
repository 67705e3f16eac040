// swift-tools-version: 5.9
// `cargo xtask xcframework` makes what this names beside the sources: ZenEdgeFFI.xcframework, the generated bindings
// (Sources/ZenEdge/ZenEdge.swift) and the default pack (Sources/ZenEdge/pack), all of one build. An app depends on the folder that
// it assembles, target/mobile/swift/ZenEdge.
import PackageDescription

let package = Package(
    name: "ZenEdge",
    // Swift concurrency without back-deployment; `os_proc_available_memory` is older.
    platforms: [.iOS(.v15), .macOS(.v12)],
    products: [.library(name: "ZenEdge", targets: ["ZenEdge"])],
    targets: [
        .binaryTarget(name: "ZenEdgeFFI", path: "ZenEdgeFFI.xcframework"),
        .target(name: "ZenEdge", dependencies: ["ZenEdgeFFI"], resources: [.copy("pack")]),
        .testTarget(name: "ZenEdgeTests", dependencies: ["ZenEdge"]),
    ]
)
