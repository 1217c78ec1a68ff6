//! Passwords, keys and tokens, by their issuers' prefixes or by the preceding text.

use super::{Finding, Kind, Text};
use regex::Regex;

/// A name and a form; group 1, if there is one, is the secret itself.
const FORMS: [(&str, &str); 14] = [
    ("private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*-----|\z)"),
    ("AWS access key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})\b"),
    ("GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    ("Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("Stripe key", r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}\b"),
    ("Google key", r"\bAIza[0-9A-Za-z_-]{35}"),
    ("OpenAI or Anthropic key", r"\bsk-[A-Za-z0-9][A-Za-z0-9_-]{18,}"),
    ("Hugging Face token", r"\bhf_[A-Za-z0-9]{30,}\b"),
    ("SendGrid key", r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    ("JSON web token", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    ("password in a URL", r"[a-z][a-z0-9+.-]*://[^\s:/@]+:([^\s:/@]+)@"),
    ("bearer token", r"(?i)\bbearer +([A-Za-z0-9._~+/-]{16,}=*)"),
    (
        "password or key",
        concat!(
            r"(?i)\b(?:password|passwd|passwort|pwd|passphrase|api[ _-]?key|secret(?:[ _-]?key)?|",
            r"access[ _-]?token|client[ _-]?secret|mot de passe|contraseña)\b",
            r"(?:\x22|')?\s*(?::=|[:=]|\bis\b)\s*(?:\x22|')?([^\s\x22',;]{6,})"
        ),
    ),
];

pub(super) struct Secrets(Vec<(&'static str, Regex)>);

impl Default for Secrets {
    fn default() -> Self {
        // The patterns are constants, and a test checks that they compile.
        let compiled =
            FORMS.into_iter().filter_map(|(what, form)| Some((what, Regex::new(form).ok()?)));
        Self(compiled.collect())
    }
}

impl Secrets {
    pub fn find(&self, text: &Text) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (detail, form) in &self.0 {
            for captures in form.captures_iter(text.text) {
                if let Some(secret) = captures.get(1).or_else(|| captures.get(0)) {
                    findings.push(Finding { range: secret.range(), kind: Kind::Secret, detail });
                }
            }
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_compile() {
        assert_eq!(Secrets::default().0.len(), FORMS.len());
    }
}
