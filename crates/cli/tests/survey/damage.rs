//! Parts, files and models that are not what the plan says.

use popfit_testing::message;

use super::{Survey, spectra};

/// A plan of three parts, all fitted.
fn fitted() -> Survey {
    let survey = Survey::new(3);
    survey.plan(&["--parts", "3"]);
    survey.succeed(&["fit", "--plan", "run", "--take", "--device", "cpu"]);
    survey
}

/// Asserts that a merge is refused with these words, and makes nothing.
fn assert_refused(survey: &Survey, words: &str) {
    let output = survey.run(&["merge", "run", "-o", "merged.parquet"]);
    assert_eq!(
        output.status.code(),
        Some(2),
        "{words}: {}",
        message(&output)
    );
    assert!(
        message(&output).contains(words),
        "{words}: {}",
        message(&output)
    );
    assert!(!survey.path("merged.parquet").exists());
    assert!(!survey.path("run/_SUCCESS").exists());
}

#[test]
fn parts_that_were_cut_swapped_or_edited_are_found() {
    let survey = fitted();
    let parts: Vec<String> = survey
        .parts()
        .iter()
        .map(|name| format!("run/{name}"))
        .collect();
    let whole = survey.bytes(&parts[0]);
    // cut
    std::fs::write(survey.path(&parts[0]), &whole[..whole.len() - 100]).unwrap();
    assert_refused(&survey, &parts[0]);
    // edited: a bit that no row depends on may pass, and changes nothing
    survey.fit("one.parquet", &[]);
    let mut refused = 0;
    for place in (100..whole.len()).step_by(whole.len() / 40) {
        let mut edited = whole.clone();
        edited[place] ^= 1;
        std::fs::write(survey.path(&parts[0]), &edited).unwrap();
        let output = survey.run(&["merge", "run", "-o", "edited.parquet", "--overwrite"]);
        match output.status.code() {
            Some(0) => assert!(
                survey.bytes("edited.parquet") == survey.bytes("one.parquet"),
                "at {place}"
            ),
            code => {
                assert_eq!(code, Some(2), "at {place}: {}", message(&output));
                assert!(message(&output).contains(&parts[0]), "{}", message(&output));
                refused += 1;
            }
        }
    }
    assert!(refused > 20, "{refused} of 40 are found");
    std::fs::remove_file(survey.path("run/_SUCCESS")).unwrap();
    // swapped
    std::fs::write(survey.path(&parts[0]), survey.bytes(&parts[1])).unwrap();
    assert_refused(&survey, "is not part 0 of this plan");
    // of another plan, with the name of this one
    std::fs::remove_dir_all(survey.path("run")).unwrap();
    survey.plan(&["--parts", "3", "--seed", "4"]);
    survey.succeed(&["fit", "--plan", "run", "--take", "--device", "cpu"]);
    let name = format!("run/{}", survey.parts()[0]);
    assert_ne!(name, parts[0], "the seed is in the hash");
    std::fs::write(survey.path(&name), whole).unwrap();
    assert_refused(&survey, "is not part 0 of this plan");
    // it is fitted again once it is gone
    std::fs::remove_file(survey.path(&name)).unwrap();
    survey.succeed(&["fit", "--plan", "run", "--take", "--device", "cpu"]);
    survey.fit("other_seed.parquet", &["--seed", "4"]);
    survey.assert_merged_is("other_seed.parquet");
}

#[test]
fn files_and_networks_that_have_changed_are_refused() {
    let survey = Survey::new(2);
    survey.plan(&["--parts", "2"]);
    let fit = |part| survey.run(&["fit", "--plan", "run", "--part", part, "--device", "cpu"]);
    // a part fails with exit code 1, a worker that cannot begin with 2
    let changed = |code, file: &str| {
        let output = fit("1");
        assert_eq!(output.status.code(), Some(code), "{}", message(&output));
        let said = message(&output);
        assert!(
            said.contains(file) && said.contains("differs from the file"),
            "{said}"
        );
        assert_eq!(survey.parts(), [""; 0]);
    };
    // another file of as many spectra
    let file = survey.path(&spectra(1));
    let before = std::fs::read(&file).unwrap();
    // the archive has a comment now, which no reader looks at
    let mut other = before.clone();
    let length = other.len() - 2;
    other[length] = 1;
    other.push(b'!');
    std::fs::write(&file, other).unwrap();
    changed(1, &spectra(1));
    std::fs::write(&file, before).unwrap();
    // the plan has the text of its model, and does not read the file again
    std::fs::write(survey.path("model.toml"), "another").unwrap();
    survey.succeed(&["fit", "--plan", "run", "--part", "0", "--device", "cpu"]);
    std::fs::remove_file(survey.path(&format!("run/{}", survey.parts()[0]))).unwrap();
    // another network
    let network = survey.path("emulator.safetensors");
    let mut weights = std::fs::read(&network).unwrap();
    *weights.last_mut().unwrap() ^= 1;
    std::fs::write(&network, weights).unwrap();
    changed(2, "emulator.safetensors");
}

#[test]
fn a_damaged_manifest_is_refused() {
    let survey = Survey::new(2);
    survey.plan(&["--parts", "2"]);
    let text = String::from_utf8(survey.bytes("run/_manifest.json")).unwrap();
    for (from, to, words) in [
        ("[[1,0,64]]", "[[1,0,63]]", "damaged"),
        ("[[1,0,64]]", "[[2,0,64]]", "damaged"),
        ("\"manifest\":1", "\"manifest\":99", "made this plan"),
        ("\"files\"", "\"flies\"", "unknown field"),
        ("}", "", "is not a manifest"),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        std::fs::write(
            survey.path("run/_manifest.json"),
            text.replacen(from, to, 1),
        )
        .unwrap();
        let output = survey.take(&[]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{to}: {}", message(&output));
        assert!(
            message(&output).contains(words),
            "{to}: {}",
            message(&output)
        );
    }
}
