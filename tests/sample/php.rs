//! PHP programs, on every PHP version found.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{CollapsedStacks, alone, by_some_run, measured, stops};
use crate::process::{run, untested};

/// A program whose innermost function runs the whole time, called through methods, native functions (`array_map`,
/// `usort`), a closure, a generator and `eval`, and which then waits.
const PROGRAM: &str = r#"<?php
namespace Läden;

class Korb
{
    public function summe($n)
    {
        if ($n) {
            return $this->summe($n - 1);
        }
        return \array_map(function ($x) { return außen($x); }, [1]);
    }
}

function außen($x)
{
    foreach (innen($x) as $y) {
        return $y;
    }
}

function innen($x)
{
    $numbers = [2, 1];
    \usort($numbers, __NAMESPACE__ . '\vergleich');
    yield $x;
}

function vergleich($a, $b)
{
    eval('\Läden\arbeite((float) $GLOBALS["argv"][1]);');
    warte();
    return $a - $b;
}

function arbeite($seconds)
{
    $used = \getrusage();
    $end = $used['ru_utime.tv_sec'] * 1e6 + $used['ru_utime.tv_usec'] + $seconds * 1e6;
    do {
        for ($i = 0, $sum = 0; $i < 100000; $i++) {
            $sum += $i * 3 % 7;
        }
        $used = \getrusage();
    } while ($used['ru_utime.tv_sec'] * 1e6 + $used['ru_utime.tv_usec'] < $end);
    // The last function may be read a little later, and its callers are only known until it returns.
    \usleep(300000);
    return $sum;
}

function warte()
{
    \sleep(1);
}

(new Korb)->summe(2);
"#;

/// The native function that executes PHP code.
const EVALUATION: &str = "execute_ex";

/// The PHPs of this machine without thread safety, from 7.3 to 8.5, each version once, with its version.
fn phps() -> Vec<(String, PathBuf)> {
    let versions = ["7.3", "7.4", "8.0", "8.1", "8.2", "8.3", "8.4", "8.5"];
    let system = versions.map(|version| PathBuf::from(format!("/usr/bin/php{version}")));
    // Additional ones named by the environment variable.
    let named = std::env::var_os("PROFBRIDGE_TEST_PHPS").unwrap_or_default();
    let named: Vec<PathBuf> = std::env::split_paths(&named).collect();
    let question = "echo PHP_MAJOR_VERSION, '.', PHP_MINOR_VERSION, ' ', (int) PHP_ZTS;";
    let answer = |php: PathBuf| {
        let answer = Command::new(&php).args(["-n", "-r", question]).output().ok()?;
        let said = String::from_utf8(answer.stdout).ok()?;
        let (version, threads) = said.trim().split_once(' ')?;
        (threads == "0" && versions.contains(&version)).then(|| (version.to_owned(), php))
    };
    let mut found: Vec<(String, PathBuf)> =
        system.into_iter().chain([PathBuf::from("php")]).chain(named).filter_map(answer).collect();
    found.sort();
    found.dedup_by(|one, other| one.0 == other.0);
    for version in versions {
        if found.iter().all(|(known, _)| known != version) {
            untested(&format!("there is no PHP {version}"));
        }
    }
    found
}

/// Samples a program from start to end.
fn sampled(folder: &Path, options: &[&str], php: &Path, program: &str, arguments: &[&str]) -> CollapsedStacks {
    let path = folder.join("program.php");
    std::fs::write(&path, program).unwrap();
    let command = ["--", php.to_str().unwrap(), "-n", path.to_str().unwrap()];
    let arguments = [&["sample", "-o", "out.folded"], stops(), options, &command, arguments].concat();
    let alone = alone();
    let finished = run(folder, &arguments);
    drop(alone);
    assert!(finished.status.success(), "{}", finished.stderr);
    CollapsedStacks::read(&folder.join("out.folded"))
}

fn nano(stacks: &[&(Vec<String>, u64)]) -> u64 {
    stacks.iter().map(|(_, nano)| nano).sum()
}

/// Whether these functions are on the stack, in this order.
fn has_in_order(stack: &[String], wanted: &[&str]) -> bool {
    let mut stack = stack.iter();
    wanted.iter().all(|wanted| stack.any(|name| name.contains(wanted)))
}

/// Guarantees: for a program that runs and then waits, all functions are on the stack, its own and PHP's, from the
/// script to the running one, in order and at the places of their native frames; and no frame of the evaluation
/// function is left.
#[test]
fn every_version() {
    for (version, php) in phps() {
        let folder = tempfile::tempdir().unwrap();
        by_some_run(|| {
            let stacks = sampled(folder.path(), &[], &php, PROGRAM, &["2"]);
            let (waiting, running): (Vec<_>, Vec<_>) = stacks.0.iter().partition(|(stack, _)| stack[0] == "[waiting]");
            let with = |name: &str, of: &[&(Vec<String>, u64)]| -> Vec<(Vec<String>, u64)> {
                of.iter().filter(|(stack, _)| stack.iter().any(|one| one == name)).copied().cloned().collect()
            };
            let sum = r"Läden\Korb::summe";
            let callers = [
                "{main}",
                sum,
                sum,
                sum,
                "array_map",
                "{closure",
                r"Läden\außen",
                r"Läden\innen",
                "usort",
                r"Läden\vergleich",
            ];
            let busy = with(r"Läden\arbeite", &running);
            let waits = with(r"Läden\warte", &waiting);
            // Data that may be freed at any time is not trusted the first time a running thread shows it. A native
            // function is not named either if its code has already jumped to another one, as `usort` does in some
            // builds.
            let mut own = [&callers[..], &["eval", r"Läden\arbeite"]].concat();
            own.retain(|name| *name != "usort");
            let (busy, others): (Vec<_>, Vec<_>) = busy.into_iter().partition(|(stack, _)| has_in_order(stack, &own));
            measured!(others.iter().map(|(_, nano)| nano).sum::<u64>() < 50_000_000, "{version}: {others:?}");
            for (stack, _) in &waits {
                assert!(
                    has_in_order(stack, &[&callers[..], &[r"Läden\warte", "sleep"]].concat()),
                    "{version}: {stack:?}"
                );
            }
            for (stack, _) in busy.iter().chain(&waits) {
                assert!(!stack.iter().any(|name| name.contains(EVALUATION)), "{version}: {stack:?}");
                let others = stack.iter().filter(|name| name.contains("unknown function")).count();
                assert_eq!(others, 0, "{version}: {stack:?}");
            }
            let (busy, waits) = (nano(&busy.iter().collect::<Vec<_>>()), nano(&waits.iter().collect::<Vec<_>>()));
            measured!(busy > 1_900_000_000, "{version}: {busy} of {} ns", nano(&running));
            measured!(waits > 900_000_000, "{version}: {waits} ns");
            Ok(())
        });
    }
}
