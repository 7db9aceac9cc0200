//! What a framework writes about its own build into small Python files: torch's `version.py`, TensorFlow's
//! `build_info.py`, ONNX Runtime's `build_and_package_info.py`. Read as text; no Python is run.

/// A literal that stands in such a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Literal {
    /// `'12.8'`.
    Text(String),
    /// `['sm_60', 'compute_90']`.
    List(Vec<String>),
    /// `True`.
    Bool(bool),
    /// `None`.
    None,
}

impl Literal {
    /// The text, where it is one and not empty.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// The texts of a list; none for anything else.
    pub fn list(&self) -> &[String] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }
}

/// The value of a variable at the start of a line: `cuda = '11.7'`, `cuda: Optional[str] = '12.8'`.
pub fn assigned(text: &str, name: &str) -> Option<Literal> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.trim_start();
        let value = match rest.strip_prefix(':') {
            Some(annotated) => annotated.split_once('=')?.1,
            None => rest.strip_prefix('=')?,
        };
        literal(value)
    })
}

/// The value beside a key of a dictionary, or of a list of pairs: `"cuda_version": "12.5.1"`, `('cuda_version', '12.5.1')`.
pub fn keyed(text: &str, key: &str) -> Option<Literal> {
    text.match_indices(key).find_map(|(at, _)| {
        let before = text.get(..at)?.chars().next_back()?;
        let rest = text.get(at.checked_add(key.len())?..)?;
        let rest = rest
            .strip_prefix(before)
            .filter(|_| is_quote(before))?
            .trim_start();
        literal(rest.strip_prefix([',', ':'])?)
    })
}

/// The keys that a dictionary on one line holds `True` for: `installed_ops={'async_io': False, 'fused_adam': True}`.
pub fn switched_on(text: &str, name: &str) -> Vec<String> {
    let inside = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.trim_start().strip_prefix('=')?;
        let rest = rest.trim_start().strip_prefix('{')?;
        Some(rest.split('}').next().unwrap_or(rest))
    });
    inside
        .unwrap_or_default()
        .split(',')
        .filter_map(|item| {
            let (key, value) = item.split_once(':')?;
            (value.trim() == "True").then(|| quoted(key)).flatten()
        })
        .collect()
}

/// The literal that a text begins with.
fn literal(text: &str) -> Option<Literal> {
    let text = text.trim_start();
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, _) = rest.split_once(']')?;
        let items = inside.split(',').filter_map(quoted);
        return Some(Literal::List(items.collect()));
    }
    if let Some(text) = quoted(text) {
        return Some(Literal::Text(text));
    }
    let word: String = text.chars().take_while(char::is_ascii_alphabetic).collect();
    match word.as_str() {
        "None" => Some(Literal::None),
        "True" => Some(Literal::Bool(true)),
        "False" => Some(Literal::Bool(false)),
        _ => None,
    }
}

/// What stands between the quotes that a text begins with.
fn quoted(text: &str) -> Option<String> {
    let text = text.trim_start();
    let quote = text.chars().next().filter(|c| is_quote(*c))?;
    let (inside, _) = text.get(1..)?.split_once(quote)?;
    Some(inside.to_owned())
}

fn is_quote(c: char) -> bool {
    matches!(c, '\'' | '"')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "compared with an answer")]
    fn text(text: &str) -> Option<Literal> {
        Some(Literal::Text(text.to_owned()))
    }

    #[test]
    fn torch() {
        let old = "__version__ = '1.13.1+cu117'\ncuda = '11.7'\nhip = None\n";
        let new = "from typing import Optional\n\n__all__ = ['__version__', 'cuda']\n__version__ = '2.9.1+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4.4'\n";
        assert_eq!(assigned(old, "__version__"), text("1.13.1+cu117"));
        assert_eq!(assigned(old, "cuda"), text("11.7"));
        assert_eq!(assigned(old, "hip"), Some(Literal::None));
        assert_eq!(assigned(new, "__version__"), text("2.9.1+cpu"));
        assert_eq!(assigned(new, "cuda"), Some(Literal::None));
        assert_eq!(assigned(new, "hip"), text("6.4.4"));
        assert_eq!(assigned(new, "xpu"), None);
    }

    #[test]
    fn deepspeed() {
        let text = "version='0.18.2 '\ninstalled_ops={'deepspeed_not_implemented': False, 'cpu_adam': True, 'fused_adam': True}\n\
            torch_info={'version': '2.1', 'bf16_support': True, 'cuda_version': '12.1', 'hip_version': '0.0'}\n";
        assert_eq!(
            switched_on(text, "installed_ops"),
            ["cpu_adam", "fused_adam"]
        );
        assert_eq!(switched_on(text, "ops"), [""; 0]);
        assert_eq!(
            keyed(text, "version"),
            Some(Literal::Text("2.1".to_owned()))
        );
        assert_eq!(
            keyed(text, "cuda_version"),
            Some(Literal::Text("12.1".to_owned()))
        );
    }

    #[test]
    fn tensorflow() {
        let pairs = "build_info = collections.OrderedDict([('cpu_compiler', 'clang'), ('cuda_compute_capabilities', ['sm_60', 'compute_90']), ('cuda_version', '12.5.1'), ('is_cuda_build', True)])";
        let dictionary = "build_info = {\"cuda_version\": \"12.3\", \"is_cuda_build\" : False}";
        assert_eq!(keyed(pairs, "cuda_version"), text("12.5.1"));
        let listed = keyed(pairs, "cuda_compute_capabilities").unwrap();
        assert_eq!(listed.list(), ["sm_60", "compute_90"]);
        assert_eq!(keyed(pairs, "is_cuda_build"), Some(Literal::Bool(true)));
        assert_eq!(keyed(dictionary, "cuda_version"), text("12.3"));
        assert_eq!(
            keyed(dictionary, "is_cuda_build"),
            Some(Literal::Bool(false))
        );
        assert_eq!(keyed(pairs, "cudnn_version"), None);
    }

    proptest! {
        #[test]
        fn any_text(content in "\\PC{0,60}", value in "[=:,'\"\\[\\] a-zA-Z]{0,20}") {
            let line = format!("cuda{value}{content}");
            let _ = (assigned(&line, "cuda"), keyed(&format!("'{line}"), "cuda"), keyed(&content, "a"));
        }
    }
}
