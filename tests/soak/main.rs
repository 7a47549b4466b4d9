//! A few seconds of what `popfit-bench soak` does for hours.

use std::time::Duration;

use popfit::Device;
use popfit_testing::soak::soak;

#[test]
fn a_stream_of_good_and_bad_spectra_holds_what_it_held() {
    assert_eq!(
        soak(Device::cpu(), Duration::from_secs(5)).unwrap(),
        Vec::<String>::new()
    );
}
