//! Both evaluators against small reference ones that are written another way, and against what was measured.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::Answer::{Invalid, Met, Unmet};
use super::Evaluator::{Csv, Legacy};
use super::*;
use crate::version::Version;

fn host(cuda: &str, driver: &str, arch: &str, brand: &str) -> Host {
    Host {
        cuda: HostValue::is(cuda),
        driver: HostValue::is(driver),
        arch: HostValue::is(arch),
        brand: HostValue::is(brand),
    }
}

/// An A100 on a driver of CUDA 12.4.
fn a100() -> Host {
    host("12.4", "550.54.14", "8.0", "nvidia")
}

fn legacy(value: &str) -> Answer {
    evaluate(Legacy, value, &a100())
}

fn csv(value: &str) -> Answer {
    evaluate(Csv, value, &a100())
}

fn refused(answer: &Answer) -> bool {
    matches!(answer, Invalid(_))
}

#[test]
fn the_first_term_that_is_met_decides_and_the_rest_may_be_rubbish_in_legacy_mode() {
    assert_eq!(legacy("cuda>=12.0 rubbish"), Met);
    assert_eq!(legacy("cuda>=12.9,rubbish cuda>=12.0"), Met);
    assert!(refused(&legacy("cuda>=12.9 rubbish")));
    assert!(refused(&csv("cuda>=12.0 rubbish")));
    assert!(refused(&legacy("foo>=1")));
    assert_eq!(csv("foo>=1"), Met, "an unknown property is skipped");
    assert_eq!(csv("foo>=1 cuda>=12.9"), Unmet);
}

#[test]
fn names_and_operators() {
    assert_eq!(legacy("CUDA>=12.0"), Met);
    assert_eq!(csv("CUDA>=99"), Met, "unknown, so skipped");
    assert_eq!(legacy("cuda!12.9"), Met, "a lone ! is !=");
    assert!(refused(&csv("cuda!12.9")));
    for operator in ["==", "=>", "<>", "=<"] {
        assert!(refused(&legacy(&format!("cuda{operator}12.4"))));
        assert!(refused(&csv(&format!("cuda{operator}12.4"))));
    }
    assert_eq!(csv("brand==x"), Unmet);
    assert_eq!(csv("brand<>x"), Met);
    assert_eq!(csv("brand!x"), Unmet);
    for value in ["cuda>=", "driver", ">=12.4"] {
        assert!(refused(&legacy(value)), "{value}");
    }
    assert!(refused(&csv("cuda>=")));
    assert_eq!(csv(">=12.4"), Met, "a property without a name is unknown");
}

#[test]
fn empty_conditions_and_terms_of_commas() {
    assert_eq!(legacy("cuda>=12.0,,driver>=550,"), Met);
    assert_eq!(legacy(", cuda>=99"), Met);
    assert_eq!(legacy("cuda>=99 , cuda>=11"), Unmet);
    assert_eq!(csv(", cuda>=99"), Unmet);
    assert_eq!(csv("cuda>=99 , cuda>=11"), Met);
    assert_eq!(legacy(""), Met);
    assert_eq!(legacy("  "), Met);
    assert_eq!(csv("  "), Met);
    assert_eq!(legacy("driver<411, driver>=440"), Met);
}

#[test]
fn versions_are_read_in_two_ways() {
    assert_eq!(legacy("cuda>=12..4"), Met);
    assert_eq!(legacy("cuda>=12.4.0.0.0"), Met);
    assert_eq!(legacy("cuda>=12.4.0.0.1"), Unmet);
    assert_eq!(legacy("cuda=12.4."), Met);
    assert!(refused(&legacy("cuda>=.0")), "an empty CUDA_MAJOR_VERSION");
    assert!(refused(&legacy("cuda>=v12")));
    assert!(refused(&legacy("cuda>=18446744073709551615")));
    assert_eq!(
        legacy("cuda>=13.18446744073709551615"),
        Unmet,
        "not reached, so not refused"
    );
    for value in ["cuda>=12.4.0.0", "cuda>=12..4", "cuda>=12."] {
        assert!(refused(&csv(value)), "{value}");
    }
    for value in ["cuda>=v12.4", "cuda>=012.04", "cuda>=12.5-rc.1,cuda<12.5"] {
        assert!(!refused(&csv(value)), "{value}");
    }
    assert_eq!(csv("cuda>=12.4-rc1"), Met);
    assert_eq!(csv("cuda<=12.4-rc1"), Unmet);
    assert_eq!(csv("cuda=12.4+anything"), Met);
    assert!(refused(&legacy("driver&lt;471")), "an escape of HTML");
    assert!(refused(&legacy("cuda>=12.4\tcuda>=11")));
}

#[test]
fn brand_and_driver() {
    assert_eq!(legacy("brand=NVIDIA,driver>=550,driver<551"), Met);
    assert_eq!(legacy("brand!=tesla"), Met);
    assert!(refused(&legacy("brand>=tesla")));
    assert_eq!(csv("driver>=1"), Unmet, "never filled in");
    assert_eq!(csv("brand=nvidia"), Unmet);
    assert_eq!(csv("brand!=nvidia"), Met);
    assert_eq!(csv("brand<nvidia"), Met);
    assert_eq!(csv("brand="), Met);
    assert!(refused(&legacy("brand=")));
}

#[test]
fn a_long_condition_that_does_not_hold_is_refused() {
    // `brand = ` are eight of the 127 characters that there is room for.
    let fits = "x".repeat(119);
    assert_eq!(legacy(&format!("brand={fits}")), Unmet);
    assert!(refused(&legacy(&format!("brand={fits}x"))));
    assert_eq!(legacy(&format!("brand!={fits}x")), Met);
}

#[test]
fn a_gpu_has_the_same_brand_in_all_terms() {
    let mut host = host("12.2", "535.104.05", "8.0", "tesla");
    host.brand = HostValue::OneOf(vec!["tesla".to_owned(), "nvidia".to_owned()]);
    let answer = |value: &str| evaluate(Evaluator::Legacy, value, &host);
    let both = "cuda>=12.4 brand=tesla,driver>=535 brand=nvidia,driver>=535";
    assert_eq!(answer(both), Answer::Met);
    assert_eq!(answer("cuda>=12.4 brand=titan,driver>=535"), Answer::Unmet);
    let open = Answer::Unknown(vec![Property::Brand]);
    assert_eq!(answer("cuda>=12.4 brand=tesla,driver>=535"), open);
}

#[test]
fn what_is_not_known_stays_open_only_where_it_matters() {
    let host = Host {
        brand: HostValue::Unknown,
        ..a100()
    };
    assert_eq!(evaluate(Legacy, "cuda>=12.4 brand=tesla", &host), Met);
    assert_eq!(
        evaluate(
            Legacy,
            "cuda>=12.8 brand=tesla,driver>=535,driver<536",
            &host
        ),
        Unmet,
        "the driver is none of that branch whatever the brand"
    );
    assert_eq!(
        evaluate(
            Legacy,
            "cuda>=12.8 brand=tesla,driver>=550,driver<551",
            &host
        ),
        Answer::Unknown(vec![Property::Brand])
    );
    let geforce = Host {
        brand: brands_of("NVIDIA GeForce RTX 4090"),
        ..host
    };
    assert_eq!(
        evaluate(
            Legacy,
            "cuda>=12.8 brand=tesla,driver>=550,driver<551",
            &geforce
        ),
        Unmet
    );
    let none = Host {
        arch: HostValue::NoGpu,
        brand: HostValue::NoGpu,
        ..a100()
    };
    assert_eq!(evaluate(Legacy, "brand=tesla,arch>=9.9", &none), Met);
    assert_eq!(evaluate(Legacy, "cuda>=12.8", &none), Unmet);
}

#[test]
fn the_environment_of_an_image() {
    let env = |pairs: &[(&str, &str)]| -> Requirements {
        let map: BTreeMap<_, _> = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        requirements(&map)
    };
    let modern = env(&[
        ("CUDA_VERSION", "12.4.1"),
        ("NVIDIA_REQUIRE_CUDA", "cuda>=12.4"),
        ("NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS", "base"),
        ("NVIDIA_REQUIRE_MINE", "arch>=8.0"),
    ]);
    let names: Vec<_> = modern.values.iter().map(|v| v.variable.as_str()).collect();
    assert_eq!(names, ["NVIDIA_REQUIRE_CUDA", "NVIDIA_REQUIRE_MINE"]);
    assert!(!modern.legacy_image && !modern.disabled);
    let old = env(&[("CUDA_VERSION", "8.0.61"), ("NVIDIA_REQUIRE_CUDA", "")]);
    assert!(old.legacy_image);
    assert_eq!(old.values[0].value, "cuda>=8.0");
    for broken in ["latest", "10.1.243.1"] {
        let found = env(&[("CUDA_VERSION", broken)]);
        assert_eq!(found.broken_cuda_version.as_deref(), Some(broken));
        assert!(found.values.is_empty());
    }
    assert!(env(&[("NVIDIA_DISABLE_REQUIRE", "true")]).disabled);
    let yes = env(&[("NVIDIA_DISABLE_REQUIRE", "yes")]);
    assert!(!yes.disabled);
    assert_eq!(yes.not_disabled_by.as_deref(), Some("yes"));
}

/// What the reference evaluators answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plain {
    Yes,
    No,
    Error,
}

fn plain(answer: &Answer) -> Plain {
    match answer {
        Met => Plain::Yes,
        Unmet => Plain::No,
        Invalid(_) => Plain::Error,
        Answer::Unknown(_) => panic!("everything is known of this host"),
    }
}

/// Versions as lists of numbers with zeros added, as far as the comparison gets.
fn reference_versions(host: &str, operand: &str) -> Option<std::cmp::Ordering> {
    if operand.chars().any(|c| !c.is_ascii_digit() && c != '.') || operand.starts_with('.') {
        return None;
    }
    let numbers = |text: &str| -> Vec<u128> {
        text.split('.')
            .filter(|part| !part.is_empty())
            .map(|part| part.parse().unwrap_or(u128::MAX))
            .collect()
    };
    let (a, b) = (numbers(host), numbers(operand));
    for at in 0..a.len().max(b.len()) {
        let x = a.get(at).copied().unwrap_or(0);
        let y = b.get(at).copied().unwrap_or(0);
        if at < a.len() && at < b.len() && y >= u128::from(u64::MAX) {
            return None;
        }
        if x != y {
            return Some(x.cmp(&y));
        }
    }
    Some(std::cmp::Ordering::Equal)
}

fn reference_condition(text: &str, host: [&str; 4]) -> Plain {
    let Some(start) = text.find(['<', '>', '=', '!']) else {
        return Plain::Error;
    };
    let (name, rest) = text.split_at(start);
    let operand = rest.trim_start_matches(['<', '>', '=', '!']);
    let operator = &rest[..rest.len() - operand.len()];
    if operand.is_empty() {
        return Plain::Error;
    }
    let order = match name.to_ascii_lowercase().as_str() {
        "cuda" => reference_versions(host[0], operand),
        "driver" => reference_versions(host[1], operand),
        "arch" => reference_versions(host[2], operand),
        "brand" => {
            if !matches!(operator, "=" | "!=" | "!") {
                return Plain::Error;
            }
            Some(
                host[3]
                    .to_ascii_lowercase()
                    .cmp(&operand.to_ascii_lowercase()),
            )
        }
        _ => None,
    };
    let Some(order) = order else {
        return Plain::Error;
    };
    let (holds, shown) = match operator {
        "=" => (order.is_eq(), "="),
        "!=" | "!" => (order.is_ne(), "!="),
        "<" => (order.is_lt(), "<"),
        "<=" => (order.is_le(), "<="),
        ">" => (order.is_gt(), ">"),
        ">=" => (order.is_ge(), ">="),
        _ => return Plain::Error,
    };
    match holds {
        true => Plain::Yes,
        false if format!("{name} {shown} {operand}").len() > 127 => Plain::Error,
        false => Plain::No,
    }
}

/// The legacy evaluator by recursion.
fn reference_legacy(terms: &[&str], so_far: Plain, host: [&str; 4]) -> Plain {
    let Some((first, rest)) = terms.split_first() else {
        return so_far;
    };
    if first.is_empty() {
        return reference_legacy(rest, so_far, host);
    }
    let conditions: Vec<_> = first.split(',').filter(|c| !c.is_empty()).collect();
    if conditions.is_empty() {
        return so_far;
    }
    let stops_at = conditions
        .iter()
        .map(|text| reference_condition(text, host))
        .find(|one| *one != Plain::Yes);
    match stops_at {
        None => Plain::Yes,
        Some(Plain::No) => reference_legacy(rest, Plain::No, host),
        Some(other) => other,
    }
}

/// A value made of the pieces that the grammar is about, in any order.
fn values() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "cuda",
        "driver",
        "arch",
        "brand",
        "CUDA",
        "Brand",
        "foo",
        ">=",
        "<",
        "=",
        "!=",
        "!",
        "==",
        "<=",
        ">",
        "12.4",
        "12",
        "12.9",
        "0",
        ".",
        "..",
        "550",
        "550.54.14",
        "551",
        "8.0",
        "nvidia",
        "NVIDIA",
        "tesla",
        " ",
        " ",
        " ",
        ",",
        ",",
        "\t",
        "v",
        "-rc1",
        "+x",
        "18446744073709551615",
        "18446744073709551614",
        "00012.4",
        "ü",
    ]);
    let loose = prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat());
    let condition = (
        prop::sample::select(vec!["cuda", "driver", "arch", "brand", "CuDa"]),
        prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">=", "!"]),
        prop::sample::select(vec![
            "12.4",
            "12.9",
            "11.8",
            "550",
            "551",
            "470",
            "8.0",
            "9.0",
            "nvidia",
            "tesla",
            "12.4.0.0.1",
        ]),
    )
        .prop_map(|(name, operator, operand)| format!("{name}{operator}{operand}"));
    let term = prop::collection::vec(condition, 0..4).prop_map(|all| all.join(","));
    let formed = prop::collection::vec(term, 0..5).prop_map(|all| all.join(" "));
    prop_oneof![loose, formed]
}

proptest! {
    #[test]
    fn the_legacy_evaluator_agrees_with_the_reference(value in values()) {
        let host = ["12.4", "550.54.14", "8.0", "nvidia"];
        let terms: Vec<_> = value.split(' ').collect();
        prop_assert_eq!(plain(&legacy(&value)), reference_legacy(&terms, Plain::Yes, host));
    }

    /// Of a value without rubbish and without driver and brand both say the same.
    #[test]
    fn both_agree_where_they_read_the_same(value in values()) {
        let (old, new) = (legacy(&value), csv(&value));
        let tame = !value.contains("driver")
            && !value.to_lowercase().contains("brand")
            && !value.contains(|c: char| c.is_ascii_uppercase())
            && !value.split(' ').any(|term| !term.is_empty() && term.chars().all(|c| c == ','));
        if tame && !refused(&old) && !refused(&new) && !value.contains("foo") && !value.contains("-rc")
            && !value.contains(['\t', '+', 'v']) && !value.split([' ', ',']).any(|c| c.starts_with(['<', '>', '=', '!']))
        {
            prop_assert_eq!(old, new);
        }
    }

    /// An answer for a host of which little is known is the answer for every host that it may be.
    #[test]
    fn an_answer_for_a_half_known_host_holds_for_all_that_it_may_be(value in values()) {
        let brands = ["nvidia", "tesla"];
        let drivers = ["550.54.14", "470.82.01"];
        for evaluator in [Legacy, Csv] {
            let half = Host {
                brand: HostValue::OneOf(brands.map(str::to_owned).to_vec()),
                driver: HostValue::OneOf(drivers.map(str::to_owned).to_vec()),
                ..a100()
            };
            let dark = Host { brand: HostValue::Unknown, driver: HostValue::Unknown, ..a100() };
            for unsure in [half, dark] {
                let answer = evaluate(evaluator, &value, &unsure);
                if matches!(answer, Answer::Unknown(_)) {
                    continue;
                }
                for brand in brands {
                    for driver in drivers {
                        let sure = evaluate(evaluator, &value, &host("12.4", driver, "8.0", brand));
                        prop_assert_eq!(plain(&sure), plain(&answer));
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_panics(value in any::<String>()) {
        for evaluator in [Legacy, Csv] {
            let _ = evaluate(evaluator, &value, &Host::default());
        }
        let _ = terms(&value);
    }
}

/// What is lacked: CUDA version, branches, other words for the driver, words for the GPU.
#[test]
fn what_a_host_lacks() {
    let lack = |value: &str| Lack::of(&terms(value), &a100());
    let image = lack(
        "cuda>=12.8 brand=tesla,driver>=535,driver<536 brand=nvidia,driver>=570,driver<571 brand=nvidia,driver>=535,driver<536",
    );
    assert_eq!(image.cuda, Version::parse("12.8"));
    assert_eq!(image.branches, [535, 570]);
    assert!(image.driver.is_empty() && image.gpu.is_empty());
    assert_eq!(image.both, ["brand=tesla,driver<536"]);
    for (value, driver, gpu) in [
        ("arch>=9.0", &[][..], &["arch>=9.0"][..]),
        ("brand=geforce", &[], &["brand=geforce"]),
        ("cuda!=12.4", &["cuda!=12.4"], &[]),
        ("cuda<12.0 driver>=560", &["cuda<12.0", "driver>=560"], &[]),
        ("cuda>=12.0,cuda<12.3", &["cuda<12.3"], &[]),
    ] {
        let lack = lack(value);
        assert_eq!(lack.cuda, None, "{value}");
        assert_eq!(lack.driver, driver, "{value}");
        assert_eq!(lack.gpu, gpu, "{value}");
    }
    assert_eq!(lack("cuda>=12.0"), Lack::default());
}

#[test]
fn enroot_hands_on_more_and_is_switched_off_by_any_word() {
    let env: BTreeMap<String, String> = [
        ("NVIDIA_REQUIRE_JETPACK", "csv-mounts=all"),
        ("CUDA_VERSION", "latest"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let in_enroot = requirements_in_enroot(&env);
    assert_eq!(in_enroot.values.len(), 1);
    assert!(in_enroot.broken_cuda_version.is_none() && !in_enroot.disabled);
    assert!(requirements(&env).broken_cuda_version.is_some());
    let off = env
        .into_iter()
        .chain([("NVIDIA_DISABLE_REQUIRE".to_owned(), "no".to_owned())]);
    assert!(requirements_in_enroot(&off.collect()).disabled);
}

#[test]
fn brands_by_the_words_of_a_name() {
    let brands = |name: &str| match brands_of(name) {
        HostValue::OneOf(brands) => brands.join(" "),
        _ => String::new(),
    };
    assert_eq!(brands("NVIDIA GeForce RTX 4090"), "geforce geforcertx");
    for name in [
        "NVIDIA RTX A6000",
        "RTX 6000 Ada Generation",
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    ] {
        assert!(brands(name).contains("nvidiartx"), "{name}");
    }
    assert_eq!(brands("RTX 4090"), "", "a GeForce that is not called one");
}
