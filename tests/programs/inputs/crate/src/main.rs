// SPDX-License-Identifier: Apache-2.0 OR MIT
use counter::count_in_threads;

fn main() {
    let total = count_in_threads(8, 20_000);
    let words: usize = total.values().sum();
    let boxed: Vec<Box<[u64]>> = (1..2_000).map(|n| vec![n; n as usize].into()).collect();
    let sum: u64 = boxed.iter().map(|row| row.iter().sum::<u64>()).sum();
    println!("{} different words of {words}, sum {sum}", total.len());
}
