// The AAR. `cargo xtask aar` first puts the library of each ABI (src/main/jniLibs), the generated bindings (generated/) and the
// default pack (src/main/assets/zen-edge) into their places, all of one build.
plugins {
    id("com.android.library")
    id("org.jetbrains.kotlin.android")
}

android {
    namespace = "ai.zenlm.edge"
    compileSdk = 36

    defaultConfig {
        // Android 7: the first whose linker and JNA's dispatcher need no workaround.
        minSdk = 24
        consumerProguardFiles("consumer-rules.pro")
        ndk { abiFilters += listOf("arm64-v8a", "x86_64") }
    }
    // A model that is stored compressed cannot be mapped.
    androidResources { noCompress += listOf("gguf", "safetensors") }
    sourceSets["main"].kotlin.srcDir("../generated")
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_17
        targetCompatibility = JavaVersion.VERSION_17
    }
    kotlinOptions { jvmTarget = "17" }
    publishing { singleVariant("release") { withSourcesJar() } }
}

dependencies {
    // The `@aar` brings JNA's own dispatcher for each ABI; 5.17 is the first that is aligned to 16 KiB pages.
    api("net.java.dev.jna:jna:5.17.0@aar")
    api("org.jetbrains.kotlinx:kotlinx-coroutines-android:1.10.2")
}
