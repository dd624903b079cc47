//! Recognizes wrappers, whose command line contains that of their child: `timeout 60 gunicorn app`,
//! `sh -c "gunicorn app"`, `sudo gunicorn app`. A pattern for arguments selects the child.

/// How many words may precede a script in the command line of its interpreter: the interpreter and one argument. The
/// kernel takes both from the script's first line (execve(2), "Interpreter scripts").
const INTERPRETER: usize = 2;

/// Whether the command line of a process contains that of its child: as consecutive words, after at least one word of
/// its own. Programs and scripts are compared by their base names, since a wrapper may find them in `PATH`.
pub(super) fn carries(wrapper: &str, child: &str) -> bool {
    let (outer, inner) = (words(wrapper), words(child));
    // A child that is a script may have an interpreter at the beginning of its command line, which the wrapper's lacks.
    (0..=INTERPRETER).any(|skipped| {
        let options = inner.iter().skip(1).take(skipped.saturating_sub(1));
        let Some(wanted) = inner.get(skipped..).filter(|wanted| !wanted.is_empty()) else { return false };
        options.into_iter().all(|word| word.starts_with('-'))
            && (skipped == 0 || inner[skipped].contains('/'))
            && outer.windows(wanted.len()).enumerate().skip(1).any(|(at, words)| {
                // If the interpreter precedes the script in the outer command line as well, that process is the
                // interpreter.
                is_same(words, wanted) && (skipped == 0 || base_name(outer[at - 1]) != base_name(inner[skipped - 1]))
            })
    })
}

fn is_same(outer: &[&str], inner: &[&str]) -> bool {
    let mut pairs = outer.iter().zip(inner);
    pairs.next().is_some_and(|(outer, inner)| base_name(outer) == base_name(inner)) && pairs.all(|(a, b)| a == b)
}

pub(super) fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The words of a command line, without quotes and command separators, since a shell's script is a single argument.
fn words(line: &str) -> Vec<&str> {
    let marks = |c: char| matches!(c, ';' | '&' | '|' | '(' | ')' | '\'' | '"');
    line.split_whitespace().map(|word| word.trim_matches(marks)).filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: wrapper words before a command are recognized, also if the command is a script or is inside of one.
    /// A program is not a wrapper if it starts itself, another program with other arguments, or one with some of its
    /// own arguments.
    #[test]
    fn wrappers() {
        for (parent, child, is_wrapper) in [
            ("timeout 60 ./server --port 80", "./server --port 80", true),
            ("timeout 60 server --port 80", "/usr/bin/server --port 80", true),
            ("sudo -u www gunicorn app", "/usr/bin/python3 /usr/bin/gunicorn app", true),
            ("env A=b gunicorn app", "/usr/bin/python3 -E /usr/bin/gunicorn app", true),
            ("sh -c gunicorn app", "/usr/bin/python3 /usr/local/bin/gunicorn app", true),
            ("bash -c cd /srv && exec 'gunicorn' app; echo done", "/usr/bin/python3 /usr/bin/gunicorn app", true),
            ("time -v /opt/app", "/opt/app", true),
            ("timeout 60 python3 manage.py runserver", "python3 manage.py runserver", true),
            ("python3 manage.py runserver", "python3 manage.py runserver", false),
            ("/usr/bin/python3 /usr/bin/gunicorn app", "/usr/bin/python3 /usr/bin/gunicorn app", false),
            ("node server.js", "esbuild --service server.js", false),
            ("node server.js", "worker server.js", false),
            ("make app", "gcc -c app", false),
            ("nginx: master process", "nginx: worker process", false),
            ("supervisord", "server --port 80", false),
            ("timeout 60 server --port 80", "server --port 8080", false),
            ("server", "sh", false),
            ("", "", false),
            ("a", "", false),
        ] {
            assert_eq!(carries(parent, child), is_wrapper, "{parent}: {child}");
        }
    }
}
