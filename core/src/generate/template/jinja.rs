//! The engine that runs a template.

use super::Message;
use crate::generate::GenerateError;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, context};

/// Most bytes of a template that are believed; real ones have 1 to 20 KB.
const LONGEST: usize = 1 << 20;
/// Instructions that a template may run: it is a program out of a file.
const FUEL: u64 = 10_000_000;

/// A parsed chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// [`GenerateError::Template`], with what and where.
    pub fn parse(source: &str) -> Result<Self, GenerateError> {
        if source.len() > LONGEST {
            let why = format!("it has {} bytes, more than any model's", source.len());
            return Err(GenerateError::Template { why });
        }
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| broken(&error))?);
        environment.set_fuel(Some(FUEL));
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |why: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{why}")))
        });
        environment.add_template_owned("chat", source.to_owned()).map_err(|error| broken(&error))?;
        Ok(Self { environment })
    }

    /// The prompt of a conversation; `answer`: up to where the assistant's answer begins.
    ///
    /// # Errors
    /// [`GenerateError::Messages`] where the template refuses them, [`GenerateError::Template`] where it fails.
    pub fn render(
        &self,
        messages: &[Message],
        bos: &str,
        eos: &str,
        answer: bool,
    ) -> Result<String, GenerateError> {
        let template = self.environment.get_template("chat").map_err(|error| broken(&error))?;
        let message = |message: &Message| {
            Value::from_pairs([("role", message.role.as_str()), ("content", message.content.as_str())])
        };
        let values = context! {
            messages => Value::from(messages.iter().map(message).collect::<Vec<_>>()),
            bos_token => bos,
            eos_token => eos,
            add_generation_prompt => answer,
        };
        template.render(values).map_err(|error| broken(&error))
    }
}

/// What a template's own refusals begin with.
const RAISED: &str = "\u{1}";

fn broken(error: &Error) -> GenerateError {
    if let Some(why) = error.detail().and_then(|detail| detail.strip_prefix(RAISED)) {
        return GenerateError::Messages { why: why.to_owned() };
    }
    GenerateError::Template { why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form of Qwen's and SmolLM2's templates.
    const CHATML: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
        {{ '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}{% endif %}\
        {{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

    /// The form of Gemma's: methods of Python's strings, refusals, roles renamed.
    const GEMMA: &str = "{{ bos_token }}\n{%- for message in messages -%}\n    \
        {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}\n        \
        {{ raise_exception('roles must alternate') }}\n    {%- endif -%}\n    \
        {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}\n    \
        {{ '<start_of_turn>' + role + '\\n' + message['content'].strip() + '<end_of_turn>\\n' }}\n{%- endfor -%}\n\
        {%- if add_generation_prompt -%}\n    {{'<start_of_turn>model\\n'}}\n{%- endif -%}\n";

    #[test]
    fn templates_of_real_models_render_as_their_own_engine_does() {
        let asked = [Message::new("user", " Hi & <b> ")];
        let chatml = ChatTemplate::parse(CHATML).unwrap().render(&asked, "", "", true).unwrap();
        assert_eq!(
            chatml,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi & <b> <|im_end|>\n<|im_start|>assistant\n"
        );
        let gemma = ChatTemplate::parse(GEMMA).unwrap();
        assert_eq!(
            gemma.render(&asked, "<bos>", "", true).unwrap(),
            "<bos><start_of_turn>user\nHi & <b><end_of_turn>\n<start_of_turn>model\n"
        );
        let error = gemma.render(&[asked[0].clone(), asked[0].clone()], "", "", true).unwrap_err();
        assert!(
            matches!(&error, GenerateError::Messages { why } if why == "roles must alternate"),
            "{error}"
        );
    }

    #[test]
    fn a_hostile_template_ends_with_an_error() {
        let endless =
            "{% for a in range(100000) %}{% for b in range(100000) %}{{ a * b }}{% endfor %}{% endfor %}";
        for source in
            [endless, "{% if %}", "{{ messages.nothing() }}", "{{ 'a' * 100000000000 }}", "{% include 'x' %}"]
        {
            let result = ChatTemplate::parse(source).and_then(|template| template.render(&[], "", "", true));
            assert!(matches!(result, Err(GenerateError::Template { .. })), "{source}: {result:?}");
        }
        assert!(ChatTemplate::parse(&" ".repeat(LONGEST + 1)).is_err());
    }
}
