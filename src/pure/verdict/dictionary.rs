//! RFC 9651 dictionaries, as far as a verdict needs them: keys, whether the value is true, and plain parameters.
//! Law: what is not a dictionary is refused whole, as the RFC demands; what is not needed is checked and stepped over.
//! Absent on purpose: decimals, byte sequences, dates and inner lists as values; they are `Other`.
//! Next: `../guard/mod.rs`.

/// The members of a field, in their order; `None` once and at the end: it is no dictionary.
pub(super) struct Dictionary<'a> {
    rest: &'a str,
    state: State,
}

/// What a walk expects next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    AfterMember,
    Over,
}

/// One member.
pub(super) struct Member<'a> {
    /// Its key.
    pub(super) key: &'a str,
    /// Its value; `None` for an inner list.
    pub(super) value: Option<Bare<'a>>,
    parameters: Vec<(&'a str, Bare<'a>)>,
}

/// A value without parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bare<'a> {
    /// An integer of at most 15 digits.
    Integer(i64),
    /// A string without escapes.
    Text(&'a str),
    /// A token.
    Token(&'a str),
    /// `?1`, or no value.
    True,
    /// `?0`.
    False,
    /// Anything else that is well-formed.
    Other,
}

impl<'a> Member<'a> {
    /// The parameter of this name; of several, the last counts.
    pub(super) fn parameter(&self, name: &str) -> Option<Bare<'a>> {
        let found = self.parameters.iter().rev().find(|(key, _)| *key == name);
        found.map(|(_, value)| *value)
    }
}

impl<'a> Dictionary<'a> {
    /// Over this field.
    pub(super) fn new(field: &'a str) -> Self {
        Self {
            rest: field.trim_matches(' '),
            state: State::Start,
        }
    }

    /// The next member, or the end; the error is that it is no dictionary.
    fn step(&mut self) -> Result<Option<Member<'a>>, ()> {
        if self.state == State::AfterMember {
            self.blanks();
            if self.rest.is_empty() {
                return Ok(None);
            }
            self.eat(',').ok_or(())?;
            self.blanks();
        } else if self.rest.is_empty() {
            return Ok(None);
        }
        self.state = State::AfterMember;
        self.member().map(Some).ok_or(())
    }

    fn member(&mut self) -> Option<Member<'a>> {
        let key = self.key()?;
        let value = match self.eat('=') {
            None => Some(Bare::True),
            Some(()) if self.eat('(').is_some() => {
                self.inner_list()?;
                None
            }
            Some(()) => Some(self.bare()?),
        };
        Some(Member {
            key,
            value,
            parameters: self.parameters()?,
        })
    }

    fn parameters(&mut self) -> Option<Vec<(&'a str, Bare<'a>)>> {
        let mut found = Vec::new();
        while self.eat(';').is_some() {
            self.rest = self.rest.trim_start_matches(' ');
            let key = self.key()?;
            let value = match self.eat('=') {
                None => Bare::True,
                Some(()) => self.bare()?,
            };
            found.push((key, value));
        }
        Some(found)
    }

    /// Steps over what follows an opening parenthesis.
    fn inner_list(&mut self) -> Option<()> {
        loop {
            self.rest = self.rest.trim_start_matches(' ');
            if self.eat(')').is_some() {
                return Some(());
            }
            self.bare()?;
            self.parameters()?;
            if !self.rest.starts_with([' ', ')']) {
                return None;
            }
        }
    }

    fn key(&mut self) -> Option<&'a str> {
        let starts = self
            .rest
            .starts_with(|c: char| c.is_ascii_lowercase() || c == '*');
        let goes_on =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '.' | '*');
        starts.then(|| self.take_while(goes_on))
    }

    fn bare(&mut self) -> Option<Bare<'a>> {
        match self.rest.chars().next()? {
            '"' => self.string(),
            '?' => self.boolean(),
            ':' => self.bytes(),
            '-' | '0'..='9' => self.number(),
            '@' => {
                self.eat('@')?;
                match self.number()? {
                    Bare::Integer(_) => Some(Bare::Other),
                    Bare::Text(_) | Bare::Token(_) | Bare::True | Bare::False | Bare::Other => None,
                }
            }
            '%' => {
                self.eat('%')?;
                self.string().map(|_| Bare::Other)
            }
            c if c.is_ascii_alphabetic() || c == '*' => Some(Bare::Token(self.take_while(is_of_token))),
            _ => None,
        }
    }

    fn string(&mut self) -> Option<Bare<'a>> {
        self.eat('"')?;
        let text = self.rest;
        let mut escaped = false;
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &text[at + 1..];
                    return Some(if escaped {
                        Bare::Other
                    } else {
                        Bare::Text(&text[..at])
                    });
                }
                '\\' => {
                    let (_, next) = chars.next()?;
                    matches!(next, '"' | '\\').then_some(())?;
                    escaped = true;
                }
                ' '..='~' => {}
                _ => return None,
            }
        }
        None
    }

    fn boolean(&mut self) -> Option<Bare<'a>> {
        self.eat('?')?;
        match (self.eat('1'), self.eat('0')) {
            (Some(()), _) => Some(Bare::True),
            (None, Some(())) => Some(Bare::False),
            (None, None) => None,
        }
    }

    fn bytes(&mut self) -> Option<Bare<'a>> {
        self.eat(':')?;
        self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '='));
        self.eat(':').map(|()| Bare::Other)
    }

    /// An integer of at most 15 digits, or a decimal of at most 12 and 3.
    fn number(&mut self) -> Option<Bare<'a>> {
        let sign = if self.eat('-').is_some() { -1 } else { 1 };
        let whole = self.take_while(|c| c.is_ascii_digit());
        if self.eat('.').is_some() {
            let part = self.take_while(|c| c.is_ascii_digit());
            let fits = (1..=12).contains(&whole.len()) && (1..=3).contains(&part.len());
            return fits.then_some(Bare::Other);
        }
        let digits: i64 = (whole.len() <= 15).then(|| whole.parse().ok())??;
        Some(Bare::Integer(sign * digits))
    }

    fn eat(&mut self, c: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(c)?;
        Some(())
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c)
}

impl<'a> Iterator for Dictionary<'a> {
    type Item = Option<Member<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Over {
            return None;
        }
        match self.step() {
            Ok(Some(member)) => Some(Some(member)),
            Ok(None) => {
                self.state = State::Over;
                None
            }
            Err(()) => {
                self.state = State::Over;
                Some(None)
            }
        }
    }
}
