//! Parser that turns tokens into a graph, by precedence (Pratt 1973): `or`, then `and`, then comparisons, then sums,
//! then products, then a sign, then powers from the right. Before the formula there may be named terms, `name =
//! expression;` each, which are nodes of the same graph.

#![deny(clippy::indexing_slicing)] // a text must not cause a panic

use super::function::{CONSTANTS, Callable, FUNCTIONS, Pair, callable, is_function};
use super::graph::{Graph, Node, NodeId};
use super::token::{Complaint, Token, complain, tokens};
use crate::suggest::find_nearest;

/// Maximum depth of nested parentheses, signs and powers.
const DEEPEST: usize = 100;
/// Maximum number of characters of a formula.
const LONGEST: usize = 10_000;
/// Maximum number of parameters: twice as many as a step solves for, as ties take some away.
pub const MOST_PARAMETERS: usize = 64;
/// Binding power of a comparison.
const COMPARISON: u8 = 5;
/// Binding power of a sign: −x^2 is −(x^2), −x*y is (−x)*y.
const SIGN: u8 = 11;

/// A parsed formula.
pub struct Parsed {
    pub graph: Graph,
    pub value: NodeId,
    /// The parameters that the parser was given, then the others in the order in which they appear.
    pub parameters: Vec<String>,
    /// Names of the terms.
    pub terms: Vec<String>,
}

/// Names that are refused as parameters, because nobody means a parameter by them.
const NO_PARAMETERS: [&str; 5] = ["nan", "inf", "infinity", "true", "false"];

/// What to write instead of functions of other languages.
const ELSEWHERE: [(&str, &str); 6] = [
    ("not", "(condition) == 0"),
    ("if", "select(condition, a, b)"),
    ("where", "select(condition, a, b)"),
    ("piecewise", "select(condition, a, b)"),
    ("wofz", "faddeeva_re(x, y) or faddeeva_im(x, y)"),
    ("voigt_profile", "voigt(x, sigma, gamma)"),
];

/// A named term of a formula.
struct Term {
    name: String,
    /// Position of the name in its definition, in characters.
    at: usize,
    value: NodeId,
    is_used: bool,
}

/// Parses `text`, in which every name is a function, a constant, one of `predictors`, a term that the text defines, or
/// else a parameter, of which `parameters` come first. If they are `complete`, another one is a mistake.
pub fn parse(
    text: &str,
    predictors: &[String],
    parameters: Vec<String>,
    complete: bool,
) -> Result<Parsed, Complaint> {
    let length = text.chars().count();
    if length > LONGEST {
        return complain(
            LONGEST,
            format!("the formula has {length} characters, more than {LONGEST}"),
        );
    }
    let tokens = tokens(text)?;
    if tokens.len() == 1 {
        return complain(0, "the formula is empty");
    }
    let graph = Graph::default();
    let mut parser = Parser {
        tokens,
        next: 0,
        depth: 0,
        predictors,
        graph,
        parameters,
        complete,
        terms: Vec::new(),
    };
    while let Some((at, name)) = parser.term_name() {
        parser.define(at, name)?;
    }
    let value = parser.expression(0)?;
    match parser.take() {
        (_, Token::End) => {}
        (at, other) => return complain(at, parser.not_the_end(&other)),
    }
    if let Some(Term { name, at, .. }) = parser.terms.iter().find(|term| !term.is_used) {
        return complain(*at, format!("the term `{name}` is not used"));
    }
    let Parser {
        graph,
        parameters,
        terms,
        ..
    } = parser;
    let terms = terms.into_iter().map(|term| term.name).collect();
    Ok(Parsed {
        graph,
        value,
        parameters,
        terms,
    })
}

/// Returns whether a name is refused as a parameter's and as a term's.
pub fn is_refused(name: &str) -> bool {
    NO_PARAMETERS
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// State of the parser.
struct Parser<'a> {
    tokens: Vec<(usize, Token)>,
    next: usize,
    depth: usize,
    predictors: &'a [String],
    graph: Graph,
    parameters: Vec<String>,
    /// Whether there may be no other parameters.
    complete: bool,
    terms: Vec<Term>,
}

/// Operators that join conditions.
const AND: &str = "and";
const OR: &str = "or";
pub const OPERATORS: [&str; 2] = [AND, OR];

/// Returns whether a name is that of an operator.
pub fn is_operator(name: &str) -> bool {
    OPERATORS.contains(&name)
}

/// Returns how tightly an operator binds to its left and to its right, the higher the tighter; `None` if it is no
/// binary operator.
fn binding(token: &Token) -> Option<(u8, u8)> {
    match token {
        Token::Name(name) if name == OR => Some((1, 2)),
        Token::Name(name) if name == AND => Some((3, 4)),
        Token::Symbol('<' | '>' | '≤' | '≥' | '≡' | '≠') => {
            Some((COMPARISON, COMPARISON + 1))
        }
        Token::Symbol('+' | '-') => Some((7, 8)),
        Token::Symbol('*' | '/') => Some((9, 10)),
        Token::Symbol('^') => Some((13, 12)),
        _ => None,
    }
}

impl Parser<'_> {
    /// Returns the next token and its position in characters, without consuming it.
    fn here(&self) -> &(usize, Token) {
        self.tokens.get(self.next).unwrap_or(&(0, Token::End))
    }

    /// Returns the next token, without consuming it.
    fn peek(&self) -> &Token {
        &self.here().1
    }

    /// Consumes and returns the next token and its position in characters; the last token, `End`, stays.
    fn take(&mut self) -> (usize, Token) {
        let token = self.here().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    /// Consumes the name of a term, in front of `=`, and returns it with its position; `None` if no definition follows.
    fn term_name(&mut self) -> Option<(usize, String)> {
        let start = self.tokens.get(self.next..self.next + 2)?;
        let [(at, Token::Name(name)), (_, Token::Symbol('='))] = start else {
            return None;
        };
        let name = (*at, name.clone());
        self.next += 1;
        Some(name)
    }

    /// Parses the definition of a term, from `=` to the semicolon, and keeps the term.
    fn define(&mut self, at: usize, name: String) -> Result<(), Complaint> {
        let (equals, _) = self.take();
        let value = self.expression(0)?;
        match self.take() {
            (_, Token::Symbol(';')) => {}
            (_, Token::End) => {
                let message = format!(
                    "`{name} = …` defines a term, but no formula follows it: write only what is right of `=`, or add \
                     `;` and a formula, as in `t = x - m; a*t^2`"
                );
                return complain(equals, message);
            }
            (at, other) => return complain(at, self.not_the_end(&other)),
        }
        let has = |names: &[String]| names.contains(&name);
        let is_constant = CONSTANTS.iter().any(|(known, _)| *known == name);
        if has(self.predictors)
            || is_constant
            || is_operator(&name)
            || is_function(&name)
            || is_refused(&name)
        {
            return complain(
                at,
                format!("`{name}` means something else in formulas: give the term another name"),
            );
        }
        if self.terms.iter().any(|term| term.name == name) {
            return complain(at, format!("the term `{name}` is defined twice"));
        }
        if self.complete && has(&self.parameters) {
            return complain(
                at,
                format!("`{name}` is a parameter: give the term another name"),
            );
        }
        if has(&self.parameters) {
            return complain(
                at,
                format!("the term `{name}` is used before the end of its definition"),
            );
        }
        self.terms.push(Term {
            name,
            at,
            value,
            is_used: false,
        });
        Ok(())
    }

    /// Returns the message that a formula or a term does not end before `token`.
    fn not_the_end(&self, token: &Token) -> String {
        match token {
            Token::Symbol(')') => "this parenthesis closes none".into(),
            Token::Symbol(symbol @ ('=' | ';')) => {
                format!(
                    "`{symbol}` has no meaning here: terms are defined as in `t = x - m; a*t^2`, and `==` compares"
                )
            }
            Token::Name(name) if is_operator(&name.to_lowercase()) => {
                format!("write {} instead of `{name}`", name.to_lowercase())
            }
            other => format!("an operator is missing before {}", other.describe()),
        }
    }

    /// Parses operands joined by operators that bind at least as tightly as `least`, and returns the node of the
    /// result.
    fn expression(&mut self, least: u8) -> Result<NodeId, Complaint> {
        if self.depth == DEEPEST {
            return complain(
                self.here().0,
                format!("more than {DEEPEST} levels of nesting"),
            );
        }
        self.depth += 1;
        let mut left = self.operand()?;
        let mut is_comparison = false;
        while let Some((before, after)) =
            binding(self.peek()).filter(|(before, _)| *before >= least)
        {
            let (at, operator) = self.take();
            if is_comparison && before == COMPARISON {
                return complain(
                    at,
                    "comparisons are joined by `and`, as in `a < x and x < b`",
                );
            }
            is_comparison = before == COMPARISON;
            let right = self.expression(after)?;
            let node = self.combine(&operator, left, right);
            left = self.finite(node, at)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    /// Returns the node of a binary operator and its operands.
    fn combine(&mut self, operator: &Token, left: NodeId, right: NodeId) -> NodeId {
        match operator {
            Token::Symbol('+') => self.graph.add(left, right),
            Token::Symbol('-') => self.graph.subtract(left, right),
            Token::Symbol('*') => self.graph.multiply(left, right),
            Token::Symbol('/') => self.graph.divide(left, right),
            Token::Symbol('<') => self.graph.pair(Pair::Less, left, right),
            Token::Symbol('>') => self.graph.pair(Pair::Less, right, left),
            Token::Symbol('≤') => self.graph.pair(Pair::LessEqual, left, right),
            Token::Symbol('≥') => self.graph.pair(Pair::LessEqual, right, left),
            Token::Symbol('≡') => self.graph.pair(Pair::Equal, left, right),
            Token::Symbol('≠') => {
                let equal = self.graph.pair(Pair::Equal, left, right);
                self.graph.is_zero(equal)
            }
            Token::Name(name) => self
                .graph
                .at_least(if name == AND { 2 } else { 1 }, left, right),
            _ => self.graph.power(left, right),
        }
    }

    /// Returns the node `id`, or a complaint at character `at` if it is a non-finite constant or divides by zero.
    fn finite(&self, id: NodeId, at: usize) -> Result<NodeId, Complaint> {
        let node = self.graph.node(id);
        let is_number = |id: NodeId| self.graph.constant(id).is_some();
        if node.operands().count() > 0 && node.operands().all(is_number) {
            return complain(at, "this constant is not a finite number");
        }
        match node {
            Node::Divide(_, b) if self.graph.constant(b) == Some(0.0) => {
                complain(at, "this divides by zero")
            }
            _ => Ok(id),
        }
    }

    /// Parses a number, a name, a call, a signed operand or a parenthesised expression, and returns its node.
    fn operand(&mut self) -> Result<NodeId, Complaint> {
        let (at, token) = self.take();
        match token {
            Token::Number(value) => Ok(self.graph.number(value)),
            Token::Name(name) if is_operator(&name) => {
                complain(at, format!("a condition is missing before `{name}`"))
            }
            Token::Name(name) if *self.peek() == Token::Symbol('(') => self.call(at, &name),
            Token::Name(name) => self.name(at, &name),
            Token::Symbol('-') => {
                let operand = self.expression(SIGN)?;
                Ok(self.graph.negate(operand))
            }
            Token::Symbol('+') => self.expression(SIGN),
            Token::Symbol('(') => {
                let inner = self.expression(0)?;
                self.close(at)?;
                Ok(inner)
            }
            other => complain(
                at,
                format!(
                    "a number, a name or a parenthesis is missing before {}",
                    other.describe()
                ),
            ),
        }
    }

    /// Consumes a closing parenthesis; if there is none, complains about the one opened at character `open`.
    fn close(&mut self, open: usize) -> Result<(), Complaint> {
        match self.take() {
            (_, Token::Symbol(')')) => Ok(()),
            (_, Token::End) => complain(open, "this parenthesis is not closed"),
            (at, Token::Symbol(',')) => {
                complain(at, "a comma where no function takes another argument")
            }
            (at, other) => complain(at, self.not_the_end(&other)),
        }
    }

    /// Returns the node that a name means: a predictor, a constant, a term or a parameter, which is new unless known.
    fn name(&mut self, at: usize, name: &str) -> Result<NodeId, Complaint> {
        if let Some(k) = self.predictors.iter().position(|known| known == name) {
            return Ok(self.graph.predictor(k));
        }
        if let Some((_, value)) = CONSTANTS.iter().find(|(known, _)| *known == name) {
            return Ok(self.graph.number(*value));
        }
        if let Some(term) = self.terms.iter_mut().find(|term| term.name == name) {
            term.is_used = true;
            return Ok(term.value);
        }
        if is_function(name) {
            return complain(
                at,
                format!("`{name}` is a function: write {name}(…), or rename the parameter"),
            );
        }
        if is_refused(name) {
            return complain(
                at,
                format!(
                    "`{name}` is a value in other languages, and none here: rename the parameter"
                ),
            );
        }
        let known = self.parameters.iter().position(|known| known == name);
        let p = known.unwrap_or(self.parameters.len());
        if known.is_none() {
            if self.complete {
                let given = self.parameters.join(", ");
                return complain(
                    at,
                    format!("`{name}` is neither a predictor nor one of the parameters {given}"),
                );
            }
            if p == MOST_PARAMETERS {
                return complain(
                    at,
                    format!("`{name}` is one more than {MOST_PARAMETERS} parameters"),
                );
            }
            self.parameters.push(name.to_owned());
        }
        Ok(self.graph.parameter(p))
    }

    /// Parses the arguments of the function `name`, from its parenthesis on, and returns the node of the call.
    fn call(&mut self, at: usize, name: &str) -> Result<NodeId, Complaint> {
        let Some(callable) = callable(name) else {
            return match self.equals_after_parenthesis() {
                Some(equals) => complain(
                    equals,
                    "`=` defines no function: write only what is right of it",
                ),
                None => complain(at, self.no_function(name)),
            };
        };
        let arguments = self.arguments(name, callable)?;
        let node = match (callable, arguments.as_slice()) {
            (Callable::One(function), &[a]) => self.graph.call(function, a),
            (Callable::Two(pair), &[a, b]) => self.graph.pair(pair, a, b),
            (Callable::Several(pair), &[first, ref rest @ ..]) => rest
                .iter()
                .fold(first, |all, next| self.graph.pair(pair, all, *next)),
            (Callable::Select, &[condition, a, b]) => self.graph.select(condition, a, b),
            (Callable::Heaviside, &[x, at_zero]) => self.graph.heaviside(x, at_zero),
            (Callable::CopySign, &[a, b]) => self.graph.copy_sign(a, b),
            (Callable::Voigt, &[x, sigma, gamma]) => self.graph.voigt(x, sigma, gamma),
            _ => return complain(at, format!("`{name}` takes {}", callable.arity().2)),
        };
        self.finite(node, at)
    }

    /// Parses the arguments of the function `name`, from its parenthesis on, and returns their nodes: as many as it
    /// takes.
    fn arguments(&mut self, name: &str, callable: Callable) -> Result<Vec<NodeId>, Complaint> {
        let (least, most, number) = callable.arity();
        let (open, _) = self.take();
        let mut arguments = vec![self.expression(0)?];
        while let (comma, Token::Symbol(',')) = *self.here() {
            if arguments.len() == most {
                return complain(comma, format!("a comma, but `{name}` takes {number}"));
            }
            self.take();
            arguments.push(self.expression(0)?);
        }
        if let (place, Token::Symbol(')')) = *self.here()
            && arguments.len() < least
        {
            return complain(place, format!("`{name}` takes {number}"));
        }
        self.close(open)?;
        Ok(arguments)
    }

    /// Returns the position of an `=` directly behind a closing parenthesis, as in `f(x) = …`.
    fn equals_after_parenthesis(&self) -> Option<usize> {
        let rest = self.tokens.get(self.next..)?.windows(2);
        let mut places = rest.filter_map(|pair| match pair {
            [(_, Token::Symbol(')')), (equals, Token::Symbol('='))] => Some(*equals),
            _ => None,
        });
        places.next()
    }

    /// Returns the message that `name`, in front of a parenthesis, is not a function, with a suggestion.
    fn no_function(&self, name: &str) -> String {
        let terms = self.terms.iter().map(|term| &term.name);
        let known = self
            .parameters
            .iter()
            .chain(self.predictors)
            .chain(terms)
            .any(|other| other == name);
        if known || CONSTANTS.iter().any(|(constant, _)| *constant == name) {
            return format!("`{name}` is not a function: an operator is missing after it");
        }
        if let Some((_, instead)) = ELSEWHERE.iter().find(|(other, _)| *other == name) {
            return format!("no function `{name}`; write {instead}");
        }
        match find_nearest(name, FUNCTIONS.iter().map(|(known, _)| *known)) {
            Some(nearest) => format!("no function `{name}`; did you mean `{nearest}`?"),
            None => format!(
                "no function `{name}`; there are {}",
                FUNCTIONS.map(|(known, _)| known).join(", ")
            ),
        }
    }
}
