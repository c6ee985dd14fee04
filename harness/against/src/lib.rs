//! The engine beside real Horovod, and builds of the engine beside each other: the same cases, block by block on the
//! same processors.
//!
//! | part | does |
//! |---|---|
//! | [`plan`] | cases that both can run, and the random order of their blocks |
//! | [`engine`] | the interface of both: one block of one case, in processes of its own |
//! | [`commit`] | the binary of a commit, built in a work tree of its own |
//! | [`one_block`] | one block of one case by a binary of kolo |
//! | [`kolo`] | this program's engine, as `kolo sweep` runs it |
//! | [`horovod`] | Horovod with PyTorch, as the script of `kolo tune --confirm-script` runs it |
//! | [`variant`] | a binary of kolo with variables, which is compared with others |
//! | [`interleaved`] | the blocks of several variants in one random order |
//! | [`host_times`] | how long Horovod's threads are busy with each gradient and message |
//! | [`agenda`] | which configuration is tuned or measured next, where processors move |
//! | [`tuners`] | what Horovod's autotune and `kolo tune` choose |
//! | [`regret`] | what their answers cost where Horovod runs them |
//! | [`launcher`] | the command that starts ranks |
//! | [`process`] | a command with a time limit, ended with all its children |
//! | [`resident`] | ranks that stay for many blocks, and are stopped in between |
//! | [`run`] | the blocks of a plan in their order, each recorded as it ends |
//! | [`counted`] | the steps of a block that count, where processors move |
//! | [`rounds`] | which blocks of a case are compared, and which cases need further rounds |
//! | [`block`] | the row of a block |
//! | [`comparison`] | what the blocks of all cases say |
//! | [`report`] | the same as text |

pub mod agenda;
pub mod block;
pub mod commit;
pub mod comparison;
pub mod counted;
pub mod engine;
pub mod horovod;
pub mod host_times;
pub mod interleaved;
pub mod kolo;
pub mod launcher;
pub mod one_block;
pub mod plan;
pub mod process;
pub mod regret;
pub mod report;
pub mod resident;
pub mod rounds;
pub mod run;
pub mod tuners;
pub mod variant;
