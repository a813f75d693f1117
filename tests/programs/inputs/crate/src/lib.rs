// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts words, in one thread or in several.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::mpsc;
use std::thread;

/// A text of `words` words, the same for the same seed.
pub fn text(seed: usize, words: usize) -> String {
    let mut out = String::new();
    for i in 0..words {
        write!(out, "word{} ", (i * seed) % 397).expect("writing to a string succeeds");
    }
    out
}

/// How often each word occurs.
pub fn count(text: &str) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word.to_owned()).or_insert(0) += 1;
    }
    counts
}

/// Counts `threads` texts, each in a thread of its own, and adds them up.
pub fn count_in_threads(threads: usize, words: usize) -> BTreeMap<String, usize> {
    let (sender, receiver) = mpsc::channel();
    let workers: Vec<_> = (1..=threads)
        .map(|seed| {
            let sender = sender.clone();
            thread::spawn(move || {
                for (word, number) in count(&text(seed, words)) {
                    sender.send((word, number)).expect("the receiver lives");
                }
            })
        })
        .collect();
    drop(sender);
    let mut total = BTreeMap::new();
    for (word, number) in receiver {
        *total.entry(word).or_insert(0) += number;
    }
    for worker in workers {
        worker.join().expect("no worker panics");
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_every_word() {
        assert_eq!(count(&text(3, 1000)).values().sum::<usize>(), 1000);
    }

    #[test]
    fn threads_agree_with_one() {
        let mut alone = BTreeMap::new();
        for seed in 1..=4 {
            for (word, number) in count(&text(seed, 500)) {
                *alone.entry(word).or_insert(0) += number;
            }
        }
        assert_eq!(count_in_threads(4, 500), alone);
    }
}
