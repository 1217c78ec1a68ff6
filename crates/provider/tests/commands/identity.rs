//! mTLS: only clients with a known certificate are admitted, in addition to their tokens.

use super::world::{World, json, program};
use crate::bench::refused;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Writes a certificate and its key; returns the path of each.
fn write(world: &World, name: &str, certificate: &str, key: &str) -> [PathBuf; 2] {
    let paths = ["crt", "key"].map(|end| world.bench.path(&format!("{name}.{end}")));
    fs::write(&paths[0], certificate).unwrap();
    fs::write(&paths[1], key).unwrap();
    paths
}

fn self_signed(world: &World, name: &str) -> [PathBuf; 2] {
    let made = rcgen::generate_simple_self_signed([format!("{name}.example")]).unwrap();
    write(world, name, &made.cert.pem(), &made.signing_key.serialize_pem())
}

fn with(command: &mut Command, [certificate, key]: &[PathBuf; 2]) -> Command {
    let mut same = Command::new(command.get_program());
    same.args(command.get_args()).arg("--client-cert").arg(certificate);
    same.arg("--client-key").arg(key);
    same
}

#[test]
fn only_clients_with_a_known_certificate_are_let_in() {
    let world = World::usual();
    for (owner, count) in [("ada", 20), ("bob", 20), ("eve", 20)] {
        world.token(owner);
        world.texts(owner, count);
    }
    // The list contains an authority, and the certificate of one owner.
    let mut authority = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let ada_key = rcgen::KeyPair::generate().unwrap();
    let ada = rcgen::CertificateParams::new(["ada.example".to_owned()]).unwrap();
    let ada = ada.signed_by(&ada_key, &issuer).unwrap();
    let ada = write(&world, "ada", &ada.pem(), &ada_key.serialize_pem());
    let bob = self_signed(&world, "bob");
    let eve = self_signed(&world, "eve");
    let list = world.bench.path("allowed.pem");
    let known = [authority_certificate.pem(), fs::read_to_string(&bob[0]).unwrap()].concat();
    fs::write(&list, known).unwrap();
    let list = list.to_str().unwrap();
    let server = world.serve("127.0.0.1:0", &["--client-ca", list]);
    let fingerprint = server.fingerprint.clone().unwrap();
    let contribute = |owner: &str| {
        let mut command = world.contribute(owner, &server.url);
        command.args(["--fingerprint", &fingerprint]);
        command
    };
    for (owner, identity) in [("ada", &ada), ("bob", &bob)] {
        let done = json(&mut with(&mut contribute(owner), identity));
        assert_eq!(done["new"].as_u64(), Some(20), "{done}");
    }
    // A valid token is not enough without a certificate, or with an unknown one. Bob's certificate
    // without Bob's key is useless as well.
    refused(&contribute("eve").output().unwrap(), "--client-cert");
    refused(&with(&mut contribute("eve"), &eve).output().unwrap(), "--client-cert");
    let stolen = [bob[0].clone(), eve[1].clone()];
    refused(&with(&mut contribute("eve"), &stolen).output().unwrap(), "cannot be used");
    assert!(world.ledger("eve", "contribution").is_empty(), "nothing was sent or spent");
    assert_eq!(world.stored(), [("ada".into(), 20), ("bob".into(), 20), ("eve".into(), 0)]);
    // A certificate without a token is not enough either.
    let revoked =
        program(&["tokens", "revoke", "--owner", "bob"]).arg(world.folder()).output().unwrap();
    assert!(revoked.status.success());
    world.texts("bob", 30);
    refused(&with(&mut contribute("bob"), &bob).output().unwrap(), "token");
    // A file that is not a list of certificates.
    let not_a_list = world.bench.path("rows.tsv");
    let mut serve = program(&["serve", "--listen", "127.0.0.1:0", "--client-ca"]);
    refused(&serve.arg(not_a_list).arg(world.folder()).output().unwrap(), "rows.tsv");
}
