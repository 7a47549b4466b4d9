//! A few seconds of what `examples/soak.rs` does for hours.

mod stream;

use std::time::Duration;

use popfit::Device;

#[test]
fn a_stream_of_good_and_bad_spectra_holds_what_it_held() {
    assert_eq!(
        stream::soak(Device::cpu(), Duration::from_secs(5)).unwrap(),
        Vec::<String>::new()
    );
}
