import Foundation
import os

#if canImport(UIKit)
import UIKit
#endif

extension LoadOptions {
    /// As many threads as the device has fast cores, and a look at its memory before anything is loaded.
    public static func thisDevice() -> LoadOptions {
        LoadOptions(threads: fastCores(), memory: MemorySnapshot.now())
    }

    /// The cores of the fastest kind; nothing where the system does not say.
    private static func fastCores() -> UInt32? {
        var count: Int32 = 0
        var size = MemoryLayout<Int32>.size
        guard sysctlbyname("hw.perflevel0.logicalcpu", &count, &size, nil, 0) == 0, count > 0 else {
            return nil
        }
        return UInt32(count)
    }
}

extension MemorySnapshot {
    /// The device's memory now: what this app may still take, where the system says it.
    public static func now() -> MemorySnapshot? {
        let total = ProcessInfo.processInfo.physicalMemory
        #if os(iOS)
        let available = UInt64(os_proc_available_memory())
        // The simulator has no limit, and says 0.
        return available == 0 ? nil : MemorySnapshot(available: available, total: total)
        #else
        return MemorySnapshot(available: total, total: total)
        #endif
    }
}

extension Thermal {
    /// The system's word for it.
    public init(_ state: ProcessInfo.ThermalState) {
        switch state {
        case .nominal: self = .nominal
        case .fair: self = .fair
        case .serious: self = .serious
        case .critical: self = .critical
        @unknown default: self = .critical
        }
    }
}

/// Tells a router what the system says: memory to give back, whether the app is seen, how hot the device is. It ends with this
/// object; keep it as long as the router.
public final class RouterLifecycle {
    private var observers: [NSObjectProtocol] = []

    public init(_ router: Router) {
        observe(ProcessInfo.thermalStateDidChangeNotification) {
            router.setThermal(Thermal(ProcessInfo.processInfo.thermalState))
        }
        router.setThermal(Thermal(ProcessInfo.processInfo.thermalState))
        #if canImport(UIKit)
        observe(UIApplication.didReceiveMemoryWarningNotification) { router.didReceiveMemoryWarning() }
        observe(UIApplication.didEnterBackgroundNotification) { router.setForeground(false) }
        observe(UIApplication.willEnterForegroundNotification) { router.setForeground(true) }
        #endif
    }

    deinit {
        for observer in observers {
            NotificationCenter.default.removeObserver(observer)
        }
    }

    private func observe(_ name: Notification.Name, _ act: @escaping @Sendable () -> Void) {
        observers.append(NotificationCenter.default.addObserver(forName: name, object: nil, queue: nil) { _ in act() })
    }
}
