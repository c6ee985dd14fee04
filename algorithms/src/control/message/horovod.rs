//! Sizes of the messages that Horovod would send.

/// Bytes that Horovod would send for these requests (FlatBuffers, and the byte that ends an MPI
/// message); fields are names' lengths and numbers of dimensions. Measured with Horovod's serialiser:
/// exact but for small differences at one request.
pub fn requests_horovod(requests: impl Iterator<Item = (usize, usize)>) -> usize {
    let each = requests.map(|(name, dims)| 60 + 8 * dims + 8 * ((name + 4) / 8));
    match each.sum() {
        0 => 24 + 1,
        sum => 48 + sum + 1,
    }
}

/// Bytes that Horovod would send to each rank for responses, given as lengths of the names in each.
/// About right: the constant varies by a few bytes.
pub fn responses_horovod(ranks: usize, responses: impl Iterator<Item = usize>) -> usize {
    24 + 1 + responses.map(|names| 124 + 4 * ranks + names).sum::<usize>()
}

/// Part of [`responses_horovod`] for one tensor in a response.
pub fn name_horovod(length: usize) -> usize {
    12 + 4 * (length + 5).div_ceil(4)
}
