//! Measures several conditions in alternating order: A B C, C B A, ..., each compared with the first.

use serde::Serialize;

use crate::{Error, pairs::PairComparison, statistics};

/// One condition: its name, and a measurement of its cost.
pub(crate) type Condition<'a, State> = (&'a str, &'a dyn Fn(&mut State) -> Result<f64, Error>);

/// The results for the conditions after the first.
#[derive(Debug, Serialize)]
pub(crate) struct Turns {
    /// For each condition after the first: its name, and its cost relative to the first.
    pub(crate) outcomes: Vec<(String, PairComparison)>,
}

/// Measures each condition `turns` times. Returns the costs of each condition.
pub(crate) fn costs<State>(
    turns: usize,
    state: &mut State,
    conditions: &[Condition<'_, State>],
) -> Result<Vec<Vec<f64>>, Error> {
    let mut costs = vec![Vec::new(); conditions.len()];
    for turn in 0..turns {
        let mut order: Vec<usize> = (0..conditions.len()).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        // Each condition is measured in each position, because a heavy condition affects the one after it.
        order.rotate_left(turn / 2 % conditions.len());
        for place in order {
            costs[place].push((conditions[place].1)(state)?);
        }
    }
    Ok(costs)
}

/// Measures each condition `turns` times, and compares it with the first.
pub(crate) fn measure<State>(
    turns: usize,
    state: &mut State,
    conditions: &[Condition<'_, State>],
) -> Result<Turns, Error> {
    let costs = costs(turns, state, conditions)?;
    let outcomes = (1..conditions.len()).map(|place| {
        let ratios: Vec<f64> = costs[place].iter().zip(&costs[0]).map(|(b, a)| b / a).collect();
        let outcome = PairComparison {
            ratio: statistics::median(&ratios),
            interval: statistics::interval(&ratios),
            a: statistics::median(&costs[0]),
            b: statistics::median(&costs[place]),
            rejected: 0,
            calibrator_spread: 1.0,
            ratios,
        };
        (conditions[place].0.to_owned(), outcome)
    });
    Ok(Turns { outcomes: outcomes.collect() })
}
