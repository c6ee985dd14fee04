//! The fusion threshold and cycle time to use: a model proposes, measurements decide.
//!
//! | part | does |
//! |---|---|
//! | [`space`] | settings that may be chosen, and settings that are always measured |
//! | [`grid`] | the settings of one world size, and their positions among the executor's cases |
//! | [`surface`] | measures a block of a setting: an executor, or a simulated machine with noise |
//! | [`model`] | costs of messages and negotiations, learned from blocks; the expected step time of other settings |
//! | [`found`] | the state of a search: its blocks, and the expected time of every setting |
//! | [`calm`] | rounds in which the machine was as fast as in most |
//! | [`spread`] | rounds that are spread over a longer time |
//! | [`search`] | selects the next settings to measure, and when to stop |
//! | [`answer`] | the conclusion: the gain, its interval, and settings that are as good |
//! | [`fidelity`] | how far promised gains are from those of real Horovod, which is part of an interval |
//! | [`why`] | a cause of the gain that other settings may remove better |
//! | [`tuned`] | the result of tuning one grid |
//! | [`larger`] | the simulator's predictions for more ranks |
//! | [`report`] | the result as text, exports, YAML and JSON |
//! | [`confirm`] | a script that compares settings in real training jobs, and the evaluation of its output |
//! | [`regret`] | the regret of tuning on surfaces whose best setting is known |

pub mod answer;
pub mod calm;
pub mod confirm;
pub mod fidelity;
pub mod found;
pub mod grid;
pub mod larger;
pub mod model;
pub mod regret;
pub mod report;
pub mod search;
pub mod space;
pub mod spread;
pub mod surface;
pub mod tuned;
pub mod why;
