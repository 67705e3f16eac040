package ai.zenlm.edge.android

import ai.zenlm.edge.FileSource
import ai.zenlm.edge.LoadOptions
import ai.zenlm.edge.MemorySnapshot
import ai.zenlm.edge.PackSource
import ai.zenlm.edge.Router
import ai.zenlm.edge.Thermal
import android.app.ActivityManager
import android.app.Application
import android.content.ComponentCallbacks2
import android.content.Context
import android.content.res.AssetFileDescriptor
import android.content.res.Configuration
import android.os.Build
import android.os.PowerManager
import java.io.FileNotFoundException

/** The device's memory now, for [LoadOptions.memory] and for local models of the catalog. */
public fun memorySnapshot(context: Context): MemorySnapshot {
    val manager = context.getSystemService(Context.ACTIVITY_SERVICE) as ActivityManager
    val info = ActivityManager.MemoryInfo().also(manager::getMemoryInfo)
    return MemorySnapshot(info.availMem.toULong(), info.totalMem.toULong(), true)
}

/**
 * Loads a pack from the app's assets, by default the one that comes with this library. An asset that the package stores
 * uncompressed (`androidResources { noCompress += listOf("gguf", "safetensors") }`) is mapped where it lies; one that is
 * compressed is read into memory.
 */
public suspend fun Router.Companion.loadFromAssets(
    context: Context,
    folder: String = "zen-edge",
    options: LoadOptions = LoadOptions(memory = memorySnapshot(context)),
): Router {
    val opened = mutableListOf<AssetFileDescriptor>()
    fun file(name: String): FileSource = try {
        val asset = context.assets.openFd("$folder/$name").also(opened::add)
        FileSource.Descriptor(
            asset.parcelFileDescriptor.fd,
            asset.startOffset.toULong(),
            asset.length.toULong(),
            name,
        )
    } catch (compressed: FileNotFoundException) {
        // What is not there at all fails here, with its name.
        FileSource.Bytes(context.assets.open("$folder/$name").use { it.readBytes() }, name)
    }
    try {
        val there = context.assets.list(folder).orEmpty().toSet()
        return load(
            PackSource.Files(
                file("model.gguf"),
                file("heads.safetensors"),
                file("router_config.json"),
                "catalog.yaml".takeIf(there::contains)?.let(::file),
                "router_policy.yaml".takeIf(there::contains)?.let(::file),
            ),
            options,
        )
    } finally {
        opened.forEach(AssetFileDescriptor::close)
    }
}

/**
 * Tells a router what the system says: memory to give back, whether the app is seen, how hot the device is. Close it with
 * the router.
 */
public class RouterLifecycle(private val context: Context, private val router: Router) : AutoCloseable {
    private val memory = object : ComponentCallbacks2 {
        override fun onTrimMemory(level: Int) {
            if (level == ComponentCallbacks2.TRIM_MEMORY_UI_HIDDEN) router.setForeground(false)
            router.onTrimMemory(level)
        }

        override fun onConfigurationChanged(configuration: Configuration) = Unit

        @Deprecated("The system calls it still.")
        override fun onLowMemory() = router.onTrimMemory(80)
    }

    private val activities = object : Application.ActivityLifecycleCallbacks {
        override fun onActivityStarted(activity: android.app.Activity) = router.setForeground(true)
        override fun onActivityCreated(activity: android.app.Activity, state: android.os.Bundle?) = Unit
        override fun onActivityResumed(activity: android.app.Activity) = Unit
        override fun onActivityPaused(activity: android.app.Activity) = Unit
        override fun onActivityStopped(activity: android.app.Activity) = Unit
        override fun onActivitySaveInstanceState(activity: android.app.Activity, state: android.os.Bundle) = Unit
        override fun onActivityDestroyed(activity: android.app.Activity) = Unit
    }

    private var heat: AutoCloseable? = null

    init {
        context.applicationContext.registerComponentCallbacks(memory)
        (context.applicationContext as? Application)?.registerActivityLifecycleCallbacks(activities)
        // Before Android 10 the system does not say how hot it is.
        if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.Q) {
            val power = context.getSystemService(Context.POWER_SERVICE) as PowerManager
            val listener = PowerManager.OnThermalStatusChangedListener { router.setThermal(thermal(it)) }
            power.addThermalStatusListener(listener)
            router.setThermal(thermal(power.currentThermalStatus))
            heat = AutoCloseable { power.removeThermalStatusListener(listener) }
        }
    }

    override fun close() {
        context.applicationContext.unregisterComponentCallbacks(memory)
        (context.applicationContext as? Application)?.unregisterActivityLifecycleCallbacks(activities)
        heat?.close()
        heat = null
    }

    public companion object {
        /** Android's seven thermal states in the four that the router knows. */
        public fun thermal(status: Int): Thermal = when (status) {
            0, 1 -> Thermal.NOMINAL // none, light
            2 -> Thermal.FAIR // moderate
            3 -> Thermal.SERIOUS // severe
            else -> Thermal.CRITICAL // critical, emergency, shutdown
        }
    }
}
