// Generic functions, closures, trait objects, and code of the standard library inlined into them.
use std::collections::BTreeMap;
use std::fmt::Display;

mod nested {
    pub struct Counter<T> {
        pub seen: Vec<T>,
    }

    impl<T: PartialEq + Clone> Counter<T> {
        #[inline(never)]
        pub fn add(&mut self, value: &T) -> usize {
            if !self.seen.contains(value) {
                self.seen.push(value.clone());
            }
            self.seen.len()
        }
    }
}

#[inline(never)]
fn show<T: Display>(values: &[T]) -> String {
    values.iter().map(|value| format!("<{value}>")).collect::<Vec<_>>().join(", ")
}

#[inline(never)]
fn hot(limit: u64) -> u64 {
    let twice = |x: u64| std::hint::black_box(x) * 2;
    (0..limit).map(twice).filter(|x| x % 3 == 0).sum()
}

fn main() {
    let mut counter = nested::Counter { seen: Vec::new() };
    let mut map = BTreeMap::new();
    for word in std::env::args() {
        map.insert(word.clone(), counter.add(&word));
    }
    println!("{} {} {:?}", show(&[1, 2]), hot(100), map);
}
