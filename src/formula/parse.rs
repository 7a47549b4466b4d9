//! Parser that turns tokens into a graph by operator precedence (Pratt 1973). From the loosest to the tightest the
//! operators are `or`, `and`, comparisons, sums, products, signs, and powers, which are read from the right. Before the
//! formula there may be named terms, `name = expression;` each, which are nodes of the same graph.

#![deny(clippy::indexing_slicing)] // No text may cause a panic.

use super::function::{BinaryFunction, CONSTANTS, Callable, FUNCTIONS, find_callable, is_function};
use super::graph::{Graph, Node, NodeId};
use super::token::{Complaint, Token, complain, tokenise};
use crate::suggest::find_nearest;

/// Maximum depth of nested parentheses, signs and powers.
const MAX_NESTING_DEPTH: usize = 100;
/// Maximum number of characters of a formula.
const MAX_FORMULA_LENGTH: usize = 10_000;
/// Maximum number of parameters of a formula: twice as many as a fit may have, because ties take some away.
pub const MAX_FORMULA_PARAMETERS: usize = 64;
/// Binding power of a comparison.
const COMPARISON_BINDING: u8 = 5;
/// Binding power of a sign: −x^2 is −(x^2), −x*y is (−x)*y.
const SIGN_BINDING: u8 = 11;

/// A parsed formula.
pub struct Parsed {
    pub graph: Graph,
    pub value: NodeId,
    /// The parameters that the parser was given, then the others in the order in which they appear.
    pub parameters: Vec<String>,
    /// Names of the terms.
    pub terms: Vec<String>,
}

/// Names that are refused for parameters, because nobody means a parameter by them.
const REFUSED_NAMES: [&str; 5] = ["nan", "inf", "infinity", "true", "false"];

/// Functions of other languages, and what to write instead.
const FOREIGN_FUNCTIONS: [(&str, &str); 6] = [
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
/// else a parameter. The given `parameters` come first; if they are `complete`, another one is a mistake.
pub fn parse(
    text: &str,
    predictors: &[String],
    parameters: Vec<String>,
    complete: bool,
) -> Result<Parsed, Complaint> {
    let length = text.chars().count();
    if length > MAX_FORMULA_LENGTH {
        return complain(
            MAX_FORMULA_LENGTH,
            format!("the formula has {length} characters, more than {MAX_FORMULA_LENGTH}"),
        );
    }
    // 1. Split the text into tokens.
    let tokens = tokenise(text)?;
    if tokens.len() == 1 {
        return complain(0, "the formula is empty");
    }
    // 2. Parse the terms and the formula.
    let mut parser = Parser {
        tokens,
        next: 0,
        depth: 0,
        predictors,
        graph: Graph::default(),
        parameters,
        complete,
        terms: Vec::new(),
    };
    while let Some((at, name)) = parser.take_term_name() {
        parser.define_term(at, name)?;
    }
    let value = parser.parse_expression(0)?;
    match parser.take_token() {
        (_, Token::End) => {}
        (at, token) => return complain(at, parser.explain_missing_end(&token)),
    }
    // 3. Refuse terms that are not used.
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
    REFUSED_NAMES
        .iter()
        .any(|refused_name| name.eq_ignore_ascii_case(refused_name))
}

/// State of the parser.
struct Parser<'a> {
    /// Tokens with their positions, in characters.
    tokens: Vec<(usize, Token)>,
    /// Index of the next token.
    next: usize,
    /// Number of expressions that are open.
    depth: usize,
    predictors: &'a [String],
    graph: Graph,
    parameters: Vec<String>,
    /// True if there may be no other parameters.
    complete: bool,
    terms: Vec<Term>,
}

/// Operators that join conditions.
const AND_OPERATOR: &str = "and";
const OR_OPERATOR: &str = "or";
pub const WORD_OPERATORS: [&str; 2] = [AND_OPERATOR, OR_OPERATOR];

/// Returns whether a name is an operator.
pub fn is_operator(name: &str) -> bool {
    WORD_OPERATORS.contains(&name)
}

/// Returns how tightly an operator binds to its left and to its right, the higher the tighter; `None` if it is no
/// binary operator.
fn binding_powers(token: &Token) -> Option<(u8, u8)> {
    match token {
        Token::Name(name) if name == OR_OPERATOR => Some((1, 2)),
        Token::Name(name) if name == AND_OPERATOR => Some((3, 4)),
        Token::Symbol('<' | '>' | '≤' | '≥' | '≡' | '≠') => {
            Some((COMPARISON_BINDING, COMPARISON_BINDING + 1))
        }
        Token::Symbol('+' | '-') => Some((7, 8)),
        Token::Symbol('*' | '/') => Some((9, 10)),
        Token::Symbol('^') => Some((13, 12)),
        _ => None,
    }
}

impl Parser<'_> {
    /// Returns the next token and its position in characters, without consuming it.
    fn peek_with_position(&self) -> &(usize, Token) {
        self.tokens.get(self.next).unwrap_or(&(0, Token::End))
    }

    /// Returns the next token, without consuming it.
    fn peek_token(&self) -> &Token {
        &self.peek_with_position().1
    }

    /// Consumes and returns the next token and its position in characters; the last token, `End`, stays.
    fn take_token(&mut self) -> (usize, Token) {
        let token = self.peek_with_position().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    /// Consumes the name of a term, in front of `=`, and returns it with its position; `None` if no definition follows.
    fn take_term_name(&mut self) -> Option<(usize, String)> {
        let start = self.tokens.get(self.next..self.next + 2)?;
        let [(at, Token::Name(name)), (_, Token::Symbol('='))] = start else {
            return None;
        };
        let name = (*at, name.clone());
        self.next += 1;
        Some(name)
    }

    /// Parses the definition of a term, from `=` to the semicolon, and adds the term to the known ones.
    fn define_term(&mut self, at: usize, name: String) -> Result<(), Complaint> {
        // 1. Parse the expression and its semicolon.
        let (equals, _) = self.take_token();
        let value = self.parse_expression(0)?;
        match self.take_token() {
            (_, Token::Symbol(';')) => {}
            (_, Token::End) => {
                let message = format!(
                    "`{name} = …` defines a term, but no formula follows it: write only what is right of `=`, or add \
                     `;` and a formula, as in `t = x - m; a*t^2`"
                );
                return complain(equals, message);
            }
            (at, token) => return complain(at, self.explain_missing_end(&token)),
        }
        // 2. Check the name.
        let contains_name = |names: &[String]| names.contains(&name);
        let is_constant = CONSTANTS.iter().any(|(constant, _)| *constant == name);
        if contains_name(self.predictors)
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
        if self.complete && contains_name(&self.parameters) {
            return complain(
                at,
                format!("`{name}` is a parameter: give the term another name"),
            );
        }
        if contains_name(&self.parameters) {
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
    fn explain_missing_end(&self, token: &Token) -> String {
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
            token => format!("an operator is missing before {}", token.describe()),
        }
    }

    /// Parses operands joined by operators that bind at least as tightly as `min_binding`, and returns the node of the
    /// result.
    fn parse_expression(&mut self, min_binding: u8) -> Result<NodeId, Complaint> {
        if self.depth == MAX_NESTING_DEPTH {
            return complain(
                self.peek_with_position().0,
                format!("more than {MAX_NESTING_DEPTH} levels of nesting"),
            );
        }
        self.depth += 1;
        let mut left = self.parse_operand()?;
        let mut is_comparison = false;
        while let Some((left_binding, right_binding)) = binding_powers(self.peek_token())
            .filter(|(left_binding, _)| *left_binding >= min_binding)
        {
            let (at, operator) = self.take_token();
            if is_comparison && left_binding == COMPARISON_BINDING {
                return complain(
                    at,
                    "comparisons are joined by `and`, as in `a < x and x < b`",
                );
            }
            is_comparison = left_binding == COMPARISON_BINDING;
            let right = self.parse_expression(right_binding)?;
            let node = self.apply_operator(&operator, left, right);
            left = self.require_finite(node, at)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    /// Returns the node of a binary operator and its operands.
    fn apply_operator(&mut self, operator: &Token, left: NodeId, right: NodeId) -> NodeId {
        match operator {
            Token::Symbol('+') => self.graph.add(left, right),
            Token::Symbol('-') => self.graph.subtract(left, right),
            Token::Symbol('*') => self.graph.multiply(left, right),
            Token::Symbol('/') => self.graph.divide(left, right),
            Token::Symbol('<') => self.graph.call_binary(BinaryFunction::Less, left, right),
            Token::Symbol('>') => self.graph.call_binary(BinaryFunction::Less, right, left),
            Token::Symbol('≤') => self
                .graph
                .call_binary(BinaryFunction::LessEqual, left, right),
            Token::Symbol('≥') => self
                .graph
                .call_binary(BinaryFunction::LessEqual, right, left),
            Token::Symbol('≡') => self.graph.call_binary(BinaryFunction::Equal, left, right),
            Token::Symbol('≠') => {
                let equal = self.graph.call_binary(BinaryFunction::Equal, left, right);
                self.graph.is_zero(equal)
            }
            Token::Name(name) => {
                self.graph
                    .require_conditions(if name == AND_OPERATOR { 2 } else { 1 }, left, right)
            }
            _ => self.graph.power(left, right),
        }
    }

    /// Returns the node `id`, or a complaint at character `at` if it is a non-finite constant or divides by zero.
    fn require_finite(&self, id: NodeId, at: usize) -> Result<NodeId, Complaint> {
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
    fn parse_operand(&mut self) -> Result<NodeId, Complaint> {
        let (at, token) = self.take_token();
        match token {
            Token::Number(value) => Ok(self.graph.number(value)),
            Token::Name(name) if is_operator(&name) => {
                complain(at, format!("a condition is missing before `{name}`"))
            }
            Token::Name(name) if *self.peek_token() == Token::Symbol('(') => {
                self.parse_call(at, &name)
            }
            Token::Name(name) => self.resolve_name(at, &name),
            Token::Symbol('-') => {
                let operand = self.parse_expression(SIGN_BINDING)?;
                Ok(self.graph.negate(operand))
            }
            Token::Symbol('+') => self.parse_expression(SIGN_BINDING),
            Token::Symbol('(') => {
                let inner = self.parse_expression(0)?;
                self.close_parenthesis(at)?;
                Ok(inner)
            }
            token => complain(
                at,
                format!(
                    "a number, a name or a parenthesis is missing before {}",
                    token.describe()
                ),
            ),
        }
    }

    /// Consumes a closing parenthesis; if there is none, complains about the one opened at character `open`.
    fn close_parenthesis(&mut self, open: usize) -> Result<(), Complaint> {
        match self.take_token() {
            (_, Token::Symbol(')')) => Ok(()),
            (_, Token::End) => complain(open, "this parenthesis is not closed"),
            (at, Token::Symbol(',')) => {
                complain(at, "a comma where no function takes another argument")
            }
            (at, token) => complain(at, self.explain_missing_end(&token)),
        }
    }

    /// Returns the node that a name means: a predictor, a constant, a term or a parameter, which is added if it is new.
    fn resolve_name(&mut self, at: usize, name: &str) -> Result<NodeId, Complaint> {
        if let Some(k) = self
            .predictors
            .iter()
            .position(|predictor| predictor == name)
        {
            return Ok(self.graph.predictor(k));
        }
        if let Some((_, value)) = CONSTANTS.iter().find(|(constant, _)| *constant == name) {
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
        let known_index = self
            .parameters
            .iter()
            .position(|parameter| parameter == name);
        let p = known_index.unwrap_or(self.parameters.len());
        if known_index.is_none() {
            if self.complete {
                let parameters = self.parameters.join(", ");
                return complain(
                    at,
                    format!(
                        "`{name}` is neither a predictor nor one of the parameters {parameters}"
                    ),
                );
            }
            if p == MAX_FORMULA_PARAMETERS {
                return complain(
                    at,
                    format!("`{name}` is one more than {MAX_FORMULA_PARAMETERS} parameters"),
                );
            }
            self.parameters.push(name.to_owned());
        }
        Ok(self.graph.parameter(p))
    }

    /// Parses the arguments of the function `name`, from its parenthesis on, and returns the node of the call.
    fn parse_call(&mut self, at: usize, name: &str) -> Result<NodeId, Complaint> {
        let Some(callable) = find_callable(name) else {
            return match self.find_equals_after_parenthesis() {
                Some(equals) => complain(
                    equals,
                    "`=` defines no function: write only what is right of it",
                ),
                None => complain(at, self.explain_unknown_function(name)),
            };
        };
        let arguments = self.parse_arguments(name, callable)?;
        let node = match (callable, arguments.as_slice()) {
            (Callable::Unary(function), &[a]) => self.graph.call(function, a),
            (Callable::Binary(function), &[a, b]) => self.graph.call_binary(function, a, b),
            (Callable::Variadic(function), &[first, ref rest @ ..]) => {
                rest.iter().fold(first, |result, argument| {
                    self.graph.call_binary(function, result, *argument)
                })
            }
            (Callable::Select, &[condition, a, b]) => self.graph.select(condition, a, b),
            (Callable::Heaviside, &[x, at_zero]) => self.graph.heaviside(x, at_zero),
            (Callable::CopySign, &[a, b]) => self.graph.copy_sign(a, b),
            (Callable::Voigt, &[x, sigma, gamma]) => self.graph.voigt(x, sigma, gamma),
            _ => return complain(at, format!("`{name}` takes {}", callable.arity().2)),
        };
        self.require_finite(node, at)
    }

    /// Parses the arguments of the function `name`, from its parenthesis on, and returns their nodes: as many as it
    /// takes.
    fn parse_arguments(
        &mut self,
        name: &str,
        callable: Callable,
    ) -> Result<Vec<NodeId>, Complaint> {
        let (min_count, max_count, count_in_words) = callable.arity();
        let (open, _) = self.take_token();
        let mut arguments = vec![self.parse_expression(0)?];
        while let (comma, Token::Symbol(',')) = *self.peek_with_position() {
            if arguments.len() == max_count {
                return complain(
                    comma,
                    format!("a comma, but `{name}` takes {count_in_words}"),
                );
            }
            self.take_token();
            arguments.push(self.parse_expression(0)?);
        }
        if let (end, Token::Symbol(')')) = *self.peek_with_position()
            && arguments.len() < min_count
        {
            return complain(end, format!("`{name}` takes {count_in_words}"));
        }
        self.close_parenthesis(open)?;
        Ok(arguments)
    }

    /// Returns the position of an `=` directly behind a closing parenthesis, as in `f(x) = …`.
    fn find_equals_after_parenthesis(&self) -> Option<usize> {
        let following_tokens = self.tokens.get(self.next..)?;
        following_tokens.windows(2).find_map(|pair| match pair {
            [(_, Token::Symbol(')')), (equals, Token::Symbol('='))] => Some(*equals),
            _ => None,
        })
    }

    /// Returns the message that `name`, in front of a parenthesis, is not a function, with a suggestion.
    fn explain_unknown_function(&self, name: &str) -> String {
        let terms = self.terms.iter().map(|term| &term.name);
        let is_known = self
            .parameters
            .iter()
            .chain(self.predictors)
            .chain(terms)
            .any(|known_name| known_name == name);
        if is_known || CONSTANTS.iter().any(|(constant, _)| *constant == name) {
            return format!("`{name}` is not a function: an operator is missing after it");
        }
        if let Some((_, instead)) = FOREIGN_FUNCTIONS
            .iter()
            .find(|(function, _)| *function == name)
        {
            return format!("no function `{name}`; write {instead}");
        }
        match find_nearest(name, FUNCTIONS.iter().map(|(function, _)| *function)) {
            Some(nearest) => format!("no function `{name}`; did you mean `{nearest}`?"),
            None => format!(
                "no function `{name}`; there are {}",
                FUNCTIONS.map(|(function, _)| function).join(", ")
            ),
        }
    }
}
