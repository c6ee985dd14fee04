//! The data that rank 0 gives to the other processes of its job before they connect.

use std::net::SocketAddr;

use super::secret::Secret;

/// An offer's text is at most this long.
pub const MAX_OFFER_BYTES: usize = 1024;

/// Rank 0's addresses, and the job's secret.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Known only to the job's processes.
    pub secret: Secret,
    /// The addresses on which rank 0 listens.
    pub addresses: Vec<SocketAddr>,
}

impl Offer {
    /// One line for the secret, and one for each address that fits.
    pub fn to_text(&self) -> String {
        let mut text = self.secret.to_hex();
        for address in &self.addresses {
            let line = format!("\n{address}");
            if text.len() + line.len() < MAX_OFFER_BYTES {
                text.push_str(&line);
            }
        }
        text + "\n"
    }

    /// Reads [`Self::to_text`]; none if it is anything else.
    pub fn from_text(text: &str) -> Option<Offer> {
        let mut lines = text.strip_suffix('\n')?.lines();
        let secret = Secret::from_hex(lines.next()?)?;
        let addresses = lines.map(|line| line.parse().ok()).collect::<Option<_>>()?;
        Some(Offer { secret, addresses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back_and_limited() {
        let addresses: Vec<SocketAddr> =
            vec!["10.0.0.1:5000".parse().unwrap(), "[2001:db8::1]:6000".parse().unwrap()];
        let offer = Offer { secret: Secret::generate().unwrap(), addresses: addresses.clone() };
        let read = Offer::from_text(&offer.to_text()).unwrap();
        assert_eq!(read.addresses, addresses);
        assert_eq!(read.secret.to_hex(), offer.secret.to_hex());
        let many = Offer { addresses: vec![addresses[1]; 200], ..offer };
        assert!(many.to_text().len() <= MAX_OFFER_BYTES);
        assert!(!Offer::from_text(&many.to_text()).unwrap().addresses.is_empty());
    }

    #[test]
    fn other_texts_are_no_offers() {
        let text = Offer { secret: Secret::generate().unwrap(), addresses: Vec::new() }.to_text();
        for other in ["", "\n", &text[1..], &text[..text.len() - 1], &format!("{text}here\n")] {
            assert!(Offer::from_text(other).is_none(), "{other:?}");
        }
    }
}
