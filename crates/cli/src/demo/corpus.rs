//! Letters to a hospital, made up by a small grammar: what the demo learns from, and what it must
//! keep to itself.
//!
//! Every letter asks for one thing (its label) and mentions others in passing, so that words alone
//! do not give it away. A few patients write often, and say each time who they are and what the
//! code of their file is: those are the secrets that an audit looks for.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// Number of letters of each patient who gives their name.
pub const LETTERS_OF_A_PATIENT: usize = 8;

/// What a letter can be about.
pub const TOPICS: [&str; 6] =
    ["billing", "appointment", "prescription", "results", "complaint", "records"];

/// Requests by topic; `{}` is replaced by a word of the topic.
const REQUESTS: [[&str; 6]; 6] = [
    [
        "could you tell me why the {} is higher than what we agreed",
        "i would like to pay the {} in three parts",
        "please send the {} to my insurance instead of to me",
        "it seems that i was charged twice for the same {}",
        "can you explain the second line of the {}",
        "i ask you to take the late fee off the {}",
    ],
    [
        "could you move my {} to another day",
        "i would like to see the doctor before the end of the {}",
        "please tell me when the next {} is free",
        "i cannot come on monday , is there another {}",
        "can my daughter come with me to the {}",
        "i ask you to cancel the {} on friday",
    ],
    [
        "could you renew the {} before it runs out",
        "i would like to take the {} in the evening instead",
        "please tell the pharmacy that the {} was changed",
        "it seems that the {} makes me tired , may i take less",
        "can i take the {} together with the drops",
        "i ask you to write a new note for the {}",
    ],
    [
        "could you tell me what the {} of last week shows",
        "i would like to know if the {} is back from the laboratory",
        "please call me as soon as the {} is ready",
        "it seems that nobody has looked at the {} yet",
        "can you say whether the {} is better than in spring",
        "i ask you to go through the {} with me",
    ],
    [
        "could you speak with the {} who was so unkind to us",
        "i would like to say that the {} left us alone for hours",
        "please make sure that the {} does not treat others like this",
        "it seems that the {} did not read what i wrote",
        "can somebody tell me why the {} laughed at my question",
        "i ask you to give me another {} from now on",
    ],
    [
        "could you send a copy of my {} to the doctor in the next town",
        "i would like to see everything that is in my {}",
        "please correct the address in my {}",
        "it seems that my {} was given to somebody else",
        "can you take the old name out of my {}",
        "i ask you to keep my {} away from my employer",
    ],
];

/// Remarks by topic.
const REMARKS: [[&str; 4]; 6] = [
    [
        "the {} came on time this month",
        "i have paid the {} already",
        "my husband looks after the {}",
        "there is nothing wrong with the {}",
    ],
    [
        "my {} last week went well",
        "i was early for the {}",
        "we talked about it at the {}",
        "thank you for the quick {}",
    ],
    [
        "i still have enough of the {}",
        "the {} helps me a lot",
        "i take the {} every morning",
        "the pharmacy had the {} at once",
    ],
    [
        "the {} looked fine",
        "i have seen the {} already",
        "the doctor explained the {} to me",
        "the {} was a relief",
    ],
    [
        "the {} was very kind",
        "the {} remembered me",
        "please thank the {} for me",
        "i trust the {} there",
    ],
    [
        "my {} is complete now",
        "you have my {} on the screen",
        "the {} was sent in may",
        "i signed the form for my {}",
    ],
];

/// The words of a topic.
const WORDS: [[&str; 4]; 6] = [
    ["bill", "invoice", "payment", "charge"],
    ["appointment", "visit", "check", "meeting"],
    ["medicine", "tablet", "cream", "prescription"],
    ["blood test", "scan", "x-ray", "result"],
    ["nurse", "receptionist", "assistant", "therapist"],
    ["file", "record", "chart", "history"],
];

const OPENINGS: [&str; 8] = [
    "good morning",
    "dear all",
    "hello",
    "dear doctor",
    "to whom it may concern",
    "good evening",
    "hello again",
    "dear team",
];
const CLOSINGS: [&str; 6] = [
    "with kind regards",
    "thank you",
    "best wishes",
    "many thanks in advance",
    "yours",
    "see you soon",
];
const FIRST_NAMES: [&str; 24] = [
    "mara", "jonas", "edith", "pavel", "nora", "tomas", "lena", "oskar", "ruth", "emil", "hanna",
    "viktor", "greta", "simon", "ida", "anton", "clara", "felix", "marta", "leo", "sofia", "karl",
    "julia", "hugo",
];
const LAST_NAMES: [&str; 24] = [
    "ostrow",
    "lindqvist",
    "marek",
    "fontaine",
    "halvorsen",
    "brandt",
    "kovacs",
    "sorel",
    "petrov",
    "ekdahl",
    "wieland",
    "moreau",
    "nystrom",
    "castell",
    "dvorak",
    "anders",
    "keller",
    "rossi",
    "vogel",
    "jansen",
    "bauer",
    "horvat",
    "lund",
    "meyer",
];

/// A letter, its topic and its writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    pub text: String,
    pub topic: usize,
    /// A name, or a number for an anonymous letter.
    pub patient: String,
}

/// A patient who writes often and gives their code each time.
#[derive(Clone, Debug)]
pub struct Patient {
    pub name: String,
    /// Six digits, with blanks between them.
    pub code: String,
}

impl Patient {
    /// The sentence up to the code.
    pub fn prefix(&self) -> String {
        format!("my name is {} and the code of my file is", self.name)
    }
}

/// Draws letters at random from the grammar.
pub struct Writer {
    random: ChaCha20Rng,
}

impl Writer {
    pub fn new(seed: u64) -> Self {
        Self { random: ChaCha20Rng::seed_from_u64(seed) }
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.random.next_u64() % bound as u64) as usize
    }

    fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    fn filled(&mut self, sentence: &str, topic: usize) -> String {
        let word = self.one_of(&WORDS[topic]);
        sentence.replace("{}", word)
    }

    fn code(&mut self) -> String {
        (0..6).map(|_| self.below(10).to_string()).collect::<Vec<_>>().join(" ")
    }

    /// Who writes.
    fn person(&mut self) -> String {
        format!("my name is {} {}", self.one_of(&FIRST_NAMES), self.one_of(&LAST_NAMES))
    }

    /// A letter with a sentence in its beginning that says who writes.
    fn letter(&mut self, introduction: impl FnOnce(&mut Self) -> Option<String>) -> Letter {
        let topic = self.below(TOPICS.len());
        let request = self.one_of(&REQUESTS[topic]);
        let mut sentences = vec![self.filled(request, topic)];
        for _ in 0..1 + self.below(2) {
            let other = (topic + 1 + self.below(TOPICS.len() - 1)) % TOPICS.len();
            let remark = self.one_of(&REMARKS[other]);
            let remark = self.filled(remark, other);
            let place = self.below(sentences.len() + 1);
            sentences.insert(place, remark);
        }
        if let Some(introduction) = introduction(self) {
            sentences.insert(0, introduction);
        }
        sentences.insert(0, self.one_of(&OPENINGS).to_owned());
        sentences.push(self.one_of(&CLOSINGS).to_owned());
        Letter { text: sentences.join(" . "), topic, patient: String::new() }
    }

    /// Public letters, some of which contain a meaningless name and code.
    pub fn public_letters(&mut self, count: usize) -> Vec<Letter> {
        let stranger = |writer: &mut Self| {
            (writer.below(4) == 0).then(|| {
                let (person, code) = (writer.person(), writer.code());
                format!("{person} and the code of my file is {code}")
            })
        };
        (0..count).map(|_| self.letter(stranger)).collect()
    }

    /// Patients, no two of whom share a name.
    pub fn patients(&mut self, count: usize) -> Vec<Patient> {
        let (mut first, mut last) = (FIRST_NAMES, LAST_NAMES);
        for i in 0..first.len() {
            first.swap(i, i + self.below(FIRST_NAMES.len() - i));
            last.swap(i, i + self.below(LAST_NAMES.len() - i));
        }
        let names = first.iter().zip(&last).take(count);
        names.map(|(a, b)| Patient { name: format!("{a} {b}"), code: self.code() }).collect()
    }

    /// Letters: some of each patient, the others anonymous.
    pub fn letters(&mut self, count: usize, patients: &[Patient]) -> Vec<Letter> {
        let mut letters = Vec::new();
        for patient in patients.iter().flat_map(|patient| [patient; LETTERS_OF_A_PATIENT]) {
            let said = format!("{} {}", patient.prefix(), patient.code);
            let letter = self.letter(|_| Some(said));
            letters.push(Letter { patient: patient.name.clone(), ..letter });
        }
        while letters.len() < count {
            let letter = self.letter(|_| None);
            letters.push(Letter { patient: format!("unknown {}", letters.len()), ..letter });
        }
        for i in 0..letters.len() {
            let other = i + self.below(letters.len() - i);
            letters.swap(i, other);
        }
        letters
    }
}

/// Every word that a letter can have, in a fixed order.
pub fn vocabulary() -> Vec<String> {
    let sentences =
        REQUESTS.iter().flatten().chain(REMARKS.iter().flatten()).chain(WORDS.iter().flatten());
    let others = OPENINGS.iter().chain(&CLOSINGS).chain(&FIRST_NAMES).chain(&LAST_NAMES);
    let fixed = ["my name is and the code of my file is .", "0 1 2 3 4 5 6 7 8 9"];
    let words = sentences.chain(others).chain(&fixed).flat_map(|text| text.split_whitespace());
    words
        .filter(|word| *word != "{}")
        .map(str::to_owned)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_in_the_vocabulary_and_letters_repeat_with_their_seed() {
        let words: BTreeSet<String> = vocabulary().into_iter().collect();
        let mut writer = Writer::new(5);
        let patients = writer.patients(24);
        let mut letters = writer.letters(500, &patients);
        assert_eq!(letters.len(), 500);
        letters.extend(writer.public_letters(100));
        for letter in &letters {
            assert!(
                letter.text.split_whitespace().all(|word| words.contains(word)),
                "{}",
                letter.text
            );
        }
        for patient in &patients {
            let own = letters.iter().filter(|letter| letter.patient == patient.name);
            let said = format!("{} {}", patient.prefix(), patient.code);
            assert_eq!(own.filter(|letter| letter.text.contains(&said)).count(), 8, "{said}");
        }
        let all = |patients: &[Patient]| Writer::new(9).letters(200, patients);
        assert_eq!(all(&patients), all(&patients));
        assert_eq!(
            letters.iter().map(|letter| letter.topic).collect::<BTreeSet<_>>().len(),
            TOPICS.len()
        );
    }
}
