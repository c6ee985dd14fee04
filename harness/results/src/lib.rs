//! The results of runs: rows, samples, provenance, and statistics.

pub mod accounting;
pub mod block;
pub mod columnar;
pub mod compare;
pub mod conclusion;
pub mod conditions;
pub mod config_kind;
pub mod error;
pub mod files;
pub mod gpus;
pub mod inputs;
pub mod journal;
pub mod levels;
pub mod logs;
pub mod names;
pub mod nested;
pub mod over_best;
pub mod provenance;
pub mod rank_tests;
pub mod record;
pub mod row;
pub mod statistics;
pub mod toml_file;
pub mod units;
pub mod usage;
pub mod whole_lines;
