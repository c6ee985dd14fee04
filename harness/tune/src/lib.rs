//! The fusion threshold and cycle time to use: a model proposes, measurements decide.
//!
//! | part | does |
//! |---|---|
//! | [`space`] | settings that may be chosen, and which are always measured |
//! | [`grid`] | the settings of one world size, and where each lies among all that a executor knows |
//! | [`surface`] | what measures a block of a setting: a executor, or a simulated machine with noise |
//! | [`model`] | what messages and negotiations cost, learned from blocks; how long a step takes of which nothing is known but that |
//! | [`found`] | what a search knows: blocks so far, and what they let one expect of every setting |
//! | [`search`] | which setting is measured next, and when to stop |
//! | [`answer`] | from fresh blocks: what is gained, how sure that is, and what cannot be told apart |
//! | [`tuned`] | all of that for one grid |
//! | [`larger`] | what the simulator expects of more ranks |
//! | [`report`] | the same in words, as exports, YAML and JSON |
//! | [`confirm`] | a script that measures settings against each other in real training jobs, and what it says |
//! | [`regret`] | what is lost by it on surfaces whose truth is known |

pub mod answer;
pub mod confirm;
pub mod found;
pub mod grid;
pub mod larger;
pub mod model;
pub mod regret;
pub mod report;
pub mod search;
pub mod space;
pub mod surface;
pub mod tuned;
