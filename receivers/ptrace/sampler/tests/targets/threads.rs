//! `threads`: Rust threads as programs have them: one computes in a closure below `rust_outer` and `rust_leaf`, two
//! exchange messages, one waits on a mutex. Says "ready", and ends when its input does.

use std::{
    hint::black_box,
    io::{Read, Write},
    sync::{Arc, Mutex, mpsc},
    thread,
};

#[inline(never)]
fn rust_leaf(rounds: u64) -> u64 {
    (0..rounds).fold(1, |x, i| black_box(x ^ i).wrapping_mul(6_364_136_223_846_793_005))
}

#[inline(never)]
fn rust_outer() {
    loop {
        let work: Box<dyn Fn(u64) -> u64> = Box::new(|rounds| rust_leaf(rounds) + 1);
        black_box(work(black_box(1_000_000)));
    }
}

fn main() {
    let (there, here) = mpsc::sync_channel::<Vec<u64>>(4);
    thread::spawn(rust_outer);
    thread::spawn(move || while there.send((0..64).collect()).is_ok() {});
    thread::spawn(move || here.iter().map(|v| rust_leaf(v.len() as u64 * 100)).fold(0, u64::wrapping_add));
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock();
    let waiting = Arc::clone(&lock);
    thread::spawn(move || drop(waiting.lock()));
    println!("ready");
    std::io::stdout().flush().ok();
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).ok();
    drop(held);
    std::process::exit(0);
}
