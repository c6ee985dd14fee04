//! Challenge and response: both sides prove by HMAC-SHA256 that they know the job's secret.
//!
//! 1. The client sends its rank, the number of ranks, a nonce, and a tag over them. Rank 0 checks the tag, and that it
//!    has not seen the nonce before, so a stranger or a replayed hello gets no answer.
//! 2. Rank 0 answers with a nonce of its own and a tag over both nonces.
//! 3. The client checks that tag, and sends a tag over both nonces in turn.
//!
//! Every tag also covers the job's id and the name of its step, so a tag serves for one step of one handshake only.

use std::collections::HashSet;

use algorithms::topology::Rank;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::secret::{Secret, SecretError, random_bytes};

/// Begins every hello; the last byte is the version of handshake and messages.
const MAGIC: [u8; 8] = *b"kolo-ch\x01";
const NONCE_BYTES: usize = 32;
const TAG_BYTES: usize = 32;
/// Magic, rank, number of ranks, and nonce, before the tag.
const CLAIM_BYTES: usize = MAGIC.len() + 4 + 4 + NONCE_BYTES;
/// Length of the client's first message.
pub const HELLO_BYTES: usize = CLAIM_BYTES + TAG_BYTES;
/// Length of rank 0's answer.
pub const CHALLENGE_BYTES: usize = NONCE_BYTES + TAG_BYTES;
/// Length of the client's second message.
pub const PROOF_BYTES: usize = TAG_BYTES;

type Nonce = [u8; NONCE_BYTES];

/// Names of the steps, of equal length.
const HELLO: &[u8; 9] = b"hello    ";
const CHALLENGE: &[u8; 9] = b"challenge";
const PROOF: &[u8; 9] = b"proof    ";

/// The credentials of a process of a job.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Names the job; not secret.
    pub job: String,
    /// The job's secret.
    pub secret: Secret,
}

impl Credentials {
    fn mac(&self, step: &[u8; 9], claim: &[u8], answer: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.secret.as_bytes()).expect("any length of key");
        mac.update(step);
        mac.update(&(self.job.len() as u64).to_le_bytes());
        mac.update(self.job.as_bytes());
        mac.update(claim);
        mac.update(answer);
        mac
    }

    fn tag(&self, step: &[u8; 9], claim: &[u8], answer: &[u8]) -> [u8; TAG_BYTES] {
        self.mac(step, claim, answer).finalize().into_bytes().into()
    }

    /// In constant time.
    fn is_tag(&self, tag: &[u8], step: &[u8; 9], claim: &[u8], answer: &[u8]) -> bool {
        self.mac(step, claim, answer).verify_slice(tag).is_ok()
    }
}

/// The side of a process that connects.
pub struct Client<'c> {
    credentials: &'c Credentials,
    claim: [u8; CLAIM_BYTES],
}

impl<'c> Client<'c> {
    /// For a rank of a job with `ranks` processes.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(
        credentials: &'c Credentials,
        rank: Rank,
        ranks: usize,
    ) -> Result<Client<'c>, SecretError> {
        let nonce: Nonce = random_bytes()?;
        let mut claim = [0; CLAIM_BYTES];
        claim[..8].copy_from_slice(&MAGIC);
        claim[8..12].copy_from_slice(&(rank as u32).to_le_bytes());
        claim[12..16].copy_from_slice(&(ranks as u32).to_le_bytes());
        claim[16..].copy_from_slice(&nonce);
        Ok(Client { credentials, claim })
    }

    /// The first message.
    pub fn hello(&self) -> [u8; HELLO_BYTES] {
        let mut hello = [0; HELLO_BYTES];
        hello[..CLAIM_BYTES].copy_from_slice(&self.claim);
        hello[CLAIM_BYTES..].copy_from_slice(&self.credentials.tag(HELLO, &self.claim, &[]));
        hello
    }

    /// The second message; none if the other side does not know the secret.
    pub fn prove(&self, challenge: &[u8; CHALLENGE_BYTES]) -> Option<[u8; PROOF_BYTES]> {
        let (nonce, tag) = challenge.split_at(NONCE_BYTES);
        let is_rank_0 = self.credentials.is_tag(tag, CHALLENGE, &self.claim, nonce);
        is_rank_0.then(|| self.credentials.tag(PROOF, &self.claim, nonce))
    }
}

/// Rank 0's side, for all handshakes of a job.
pub struct Server {
    credentials: Credentials,
    /// Nonces of valid hellos: only a process that knows the secret, or a replay, can add one.
    seen: HashSet<Nonce>,
}

/// One handshake, of which the proof is missing.
pub struct Challenged {
    claim: [u8; CLAIM_BYTES],
    nonce: Nonce,
}

impl Server {
    /// For a job.
    pub fn new(credentials: Credentials) -> Server {
        Server { credentials, seen: HashSet::new() }
    }

    /// Answers a hello; none if it deserves no answer.
    pub fn challenge(
        &mut self,
        hello: &[u8; HELLO_BYTES],
    ) -> Option<(Challenged, [u8; CHALLENGE_BYTES])> {
        let (claim, tag) = hello.split_at(CLAIM_BYTES);
        let claim: [u8; CLAIM_BYTES] = claim.try_into().expect("split there");
        let is_known =
            claim.starts_with(&MAGIC) && self.credentials.is_tag(tag, HELLO, &claim, &[]);
        let nonce: Nonce = random_bytes().ok()?;
        if !is_known || !self.seen.insert(claim[16..].try_into().expect("the rest is the nonce")) {
            return None;
        }
        let mut challenge = [0; CHALLENGE_BYTES];
        challenge[..NONCE_BYTES].copy_from_slice(&nonce);
        challenge[NONCE_BYTES..].copy_from_slice(&self.credentials.tag(CHALLENGE, &claim, &nonce));
        Some((Challenged { claim, nonce }, challenge))
    }

    /// The authenticated rank, and its number of ranks; none if the proof is wrong.
    pub fn verify(
        &self,
        challenged: &Challenged,
        proof: &[u8; PROOF_BYTES],
    ) -> Option<(Rank, usize)> {
        let Challenged { claim, nonce } = challenged;
        let number = |at: usize| u32::from_le_bytes(claim[at..at + 4].try_into().expect("4 bytes"));
        let is_right = self.credentials.is_tag(proof, PROOF, claim, nonce);
        is_right.then(|| (number(8) as Rank, number(12) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(job: &str, digit: &str) -> Credentials {
        Credentials { job: job.into(), secret: Secret::from_hex(&digit.repeat(64)).unwrap() }
    }

    #[test]
    fn both_sides_prove_themselves() {
        let own = credentials("job", "5");
        let (client, mut server) = (Client::new(&own, 3, 8).unwrap(), Server::new(own.clone()));
        let (challenged, challenge) = server.challenge(&client.hello()).unwrap();
        let proof = client.prove(&challenge).unwrap();
        assert_eq!(server.verify(&challenged, &proof), Some((3, 8)));
    }

    #[test]
    fn every_changed_bit_is_refused() {
        let own = credentials("job", "5");
        let (client, mut server) = (Client::new(&own, 3, 8).unwrap(), Server::new(own.clone()));
        let flipped = |bytes: &[u8], bit: usize| {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        };
        for bit in 0..8 * HELLO_BYTES {
            let hello = flipped(&client.hello(), bit).try_into().unwrap();
            assert!(server.challenge(&hello).is_none(), "bit {bit} of the hello");
        }
        let (challenged, challenge) = server.challenge(&client.hello()).unwrap();
        for bit in 0..8 * CHALLENGE_BYTES {
            let challenge = flipped(&challenge, bit).try_into().unwrap();
            assert!(client.prove(&challenge).is_none(), "bit {bit} of the challenge");
        }
        let proof = client.prove(&challenge).unwrap();
        for bit in 0..8 * PROOF_BYTES {
            let proof = flipped(&proof, bit).try_into().unwrap();
            assert!(server.verify(&challenged, &proof).is_none(), "bit {bit} of the proof");
        }
    }

    #[test]
    fn another_job_or_secret_is_refused() {
        let own = credentials("job", "5");
        let mut server = Server::new(own.clone());
        for other in [credentials("job", "6"), credentials("jo", "5"), credentials("", "5")] {
            let client = Client::new(&other, 1, 2).unwrap();
            assert!(server.challenge(&client.hello()).is_none());
            // The client does not accept such a rank 0, either.
            let client = Client::new(&own, 1, 2).unwrap();
            let nonce = [9; NONCE_BYTES];
            let tag = other.tag(CHALLENGE, &client.claim, &nonce);
            let challenge = [nonce, tag].concat().try_into().unwrap();
            assert!(client.prove(&challenge).is_none());
        }
    }

    #[test]
    fn a_replay_is_refused() {
        let own = credentials("job", "5");
        let (client, mut server) = (Client::new(&own, 1, 2).unwrap(), Server::new(own.clone()));
        let (_, challenge) = server.challenge(&client.hello()).unwrap();
        let proof = client.prove(&challenge).unwrap();
        assert!(server.challenge(&client.hello()).is_none(), "the same nonce");
        // A later rank 0 with the same secret has not seen the nonce, and sends another challenge.
        let mut later = Server::new(own.clone());
        let (challenged, other) = later.challenge(&client.hello()).unwrap();
        assert!(other != challenge && later.verify(&challenged, &proof).is_none());
        // A captured answer is not accepted as rank 0's.
        assert!(Client::new(&own, 1, 2).unwrap().prove(&challenge).is_none());
        // A reflected tag belongs to another step.
        let reflected: [u8; PROOF_BYTES] = other[NONCE_BYTES..].try_into().unwrap();
        assert!(later.verify(&challenged, &reflected).is_none());
    }
}
