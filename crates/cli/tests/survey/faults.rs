//! What happens on clusters: workers that are killed, files that are bad, two workers on one part.

use std::time::Duration;

use popfit_testing::message;

use super::{SPECTRA, Survey, names, spectra};

/// Number of workers that are killed.
const KILLS: u64 = 5;

/// Their parts are taken over once their leases are old, and nothing is missing or there twice.
#[cfg(unix)]
#[test]
fn killed_workers_cost_nothing() {
    let survey = Survey::new(4);
    survey.fit("one.parquet", &[]);
    survey.plan(&["--parts", "8"]);
    for kill in 0..KILLS {
        let mut worker = survey
            .take(&["--lease", "1", "--threads", "1"])
            .spawn()
            .unwrap();
        // at other moments of opening, fitting and writing
        std::thread::sleep(Duration::from_millis(20 + 71 * kill));
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    // a lease that a killed worker left is not taken before it is old
    std::thread::sleep(Duration::from_millis(1100));
    let output = survey.take(&["--lease", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", message(&output));
    survey.assert_merged_is("one.parquet");
    let left: Vec<String> = names(&survey.path("run"))
        .into_iter()
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(left, [""; 0]);
}

/// Two workers at once, and one that fits what is there.
#[test]
fn workers_share_the_parts() {
    let survey = Survey::new(4);
    survey.fit("one.parquet", &[]);
    survey.plan(&["--parts", "4"]);
    let workers: Vec<_> = (0..2)
        .map(|_| survey.take(&["--threads", "1"]).spawn().unwrap())
        .collect();
    let mut fitted = 0;
    for worker in workers {
        let output = worker.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", message(&output));
        fitted += message(&output)
            .matches(&format!(": {SPECTRA} spectra"))
            .count();
    }
    assert_eq!(fitted, 4, "each part once");
    survey.assert_merged_is("one.parquet");
    let output = survey.succeed(&["fit", "--plan", "run", "--part", "0,3", "--device", "cpu"]);
    assert_eq!(
        message(&output).matches("is there already").count(),
        2,
        "{}",
        message(&output)
    );
}

/// A bad file among others: its part is listed with its cause, and all others are fitted.
#[test]
fn a_bad_file_costs_its_own_part_alone() {
    let survey = Survey::new(4);
    survey.fit("one.parquet", &[]);
    survey.plan(&["--parts", "4"]);
    let bad = survey.path(&spectra(2));
    let good = std::fs::read(&bad).unwrap();
    std::fs::write(&bad, &good[..good.len() / 2]).unwrap();
    let output = survey.take(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", message(&output));
    assert!(
        message(&output).contains("failed parts: 1"),
        "{}",
        message(&output)
    );
    assert_eq!(survey.parts().len(), 3);
    let failed: serde_json::Value =
        serde_json::from_slice(&survey.bytes("run/_failed.json")).unwrap();
    assert_eq!(failed[0]["part"], 2);
    assert_eq!(failed[0]["files"][0], spectra(2));
    let causes = failed[0]["causes"].as_array().unwrap();
    assert_eq!(causes.len(), 3, "{causes:?}");
    assert!(
        causes
            .iter()
            .all(|cause| cause.as_str().unwrap().contains(&spectra(2))),
        "{causes:?}"
    );
    // the merge says what is missing
    let merged = survey.run(&["merge", "run", "-o", "merged.parquet"]);
    assert_eq!(merged.status.code(), Some(2));
    assert!(
        message(&merged).contains("1 of 4 parts are missing: 2"),
        "{}",
        message(&merged)
    );
    assert!(!survey.path("merged.parquet").exists() && !survey.path("run/_SUCCESS").exists());
    assert!(
        message(&merged).contains("_failed.json says why"),
        "{}",
        message(&merged)
    );
    // of several parts on request, a bad one does not keep the others from being fitted
    std::fs::remove_file(survey.path(&format!("run/{}", survey.parts()[2]))).unwrap();
    let output = survey.run(&["fit", "--plan", "run", "--part", "2,3", "--device", "cpu"]);
    assert_eq!(output.status.code(), Some(1), "{}", message(&output));
    assert_eq!(survey.parts().len(), 3);
    // once it is mended, the part is fitted on request
    std::fs::write(&bad, good).unwrap();
    survey.succeed(&["fit", "--plan", "run", "--part", "2", "--device", "cpu"]);
    assert!(!survey.path("run/_failed.json").exists());
    survey.assert_merged_is("one.parquet");
}

/// The lease of a part that is there, whose worker was killed before the lease ended.
#[test]
fn leases_of_finished_parts_end() {
    let survey = Survey::new(4);
    survey.plan(&["--parts", "4"]);
    assert_eq!(survey.take(&[]).output().unwrap().status.code(), Some(0));
    let lease = survey.path("run/.lease-00002");
    std::fs::write(&lease, "another worker\n0").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let output = survey.take(&["--lease", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", message(&output));
    assert!(!lease.exists());
}
