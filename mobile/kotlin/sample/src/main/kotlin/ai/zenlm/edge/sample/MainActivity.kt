package ai.zenlm.edge.sample

import ai.zenlm.edge.Outcome
import ai.zenlm.edge.Router
import ai.zenlm.edge.Session
import ai.zenlm.edge.ZenEdgeException
import ai.zenlm.edge.android.RouterLifecycle
import ai.zenlm.edge.android.loadFromAssets
import android.app.Application
import android.os.Bundle
import androidx.activity.ComponentActivity
import androidx.activity.compose.setContent
import androidx.compose.foundation.layout.Arrangement
import androidx.compose.foundation.layout.Column
import androidx.compose.foundation.layout.fillMaxSize
import androidx.compose.foundation.layout.fillMaxWidth
import androidx.compose.foundation.layout.padding
import androidx.compose.foundation.layout.safeDrawingPadding
import androidx.compose.material3.MaterialTheme
import androidx.compose.material3.OutlinedTextField
import androidx.compose.material3.Surface
import androidx.compose.material3.Text
import androidx.compose.runtime.Composable
import androidx.compose.runtime.getValue
import androidx.compose.runtime.mutableStateOf
import androidx.compose.runtime.setValue
import androidx.compose.ui.Modifier
import androidx.compose.ui.unit.dp
import androidx.lifecycle.AndroidViewModel
import androidx.lifecycle.viewModelScope
import androidx.lifecycle.viewmodel.compose.viewModel
import kotlinx.coroutines.launch

/** A prompt that is routed while it is typed. */
class MainActivity : ComponentActivity() {
    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        setContent { MaterialTheme { Surface(Modifier.fillMaxSize()) { Screen() } } }
    }
}

class RouterModel(application: Application) : AndroidViewModel(application) {
    var prompt by mutableStateOf("")
        private set
    var outcome by mutableStateOf<Outcome?>(null)
        private set
    var trouble by mutableStateOf<String?>(null)
        private set

    private var router: Router? = null
    private var session: Session? = null
    private var lifecycle: RouterLifecycle? = null

    init {
        viewModelScope.launch {
            try {
                val loaded = Router.loadFromAssets(application)
                router = loaded
                session = loaded.session()
                lifecycle = RouterLifecycle(application, loaded)
                type(prompt)
            } catch (error: ZenEdgeException) {
                trouble = error.message
            }
        }
    }

    fun type(text: String) {
        prompt = text
        val session = session ?: return
        viewModelScope.launch {
            try {
                outcome = session.update(text)
                trouble = null
            } catch (stale: ZenEdgeException.Superseded) {
                // A newer text is on its way.
            } catch (error: ZenEdgeException) {
                trouble = error.message
            }
        }
    }

    override fun onCleared() {
        lifecycle?.close()
        router?.close()
    }
}

@Composable
fun Screen(model: RouterModel = viewModel()) {
    Column(Modifier.safeDrawingPadding().padding(16.dp), verticalArrangement = Arrangement.spacedBy(8.dp)) {
        OutlinedTextField(model.prompt, model::type, Modifier.fillMaxWidth(), label = { Text("Prompt") })
        model.trouble?.let { Text(it, color = MaterialTheme.colorScheme.error) }
        model.outcome?.let { outcome ->
            Text("${outcome.task} → ${outcome.model ?: "no model fits"}", style = MaterialTheme.typography.titleLarge)
            Text(outcome.because)
            Text("${outcome.tokens} tokens, %.1f ms on ${outcome.backend.isa}".format(outcome.timings.total))
            for (candidate in outcome.candidates) {
                Text("${candidate.model}  ${candidate.whyNot ?: "%.3f".format(candidate.score ?: 0.0)}")
            }
        }
    }
}
