"""Writes two questions for an SMT solver whose answers are known.

    make_smt.py UNKNOWNS TERMS

The first is a system of inequalities around a point chosen here, so it has a solution; it costs many short-lived big numbers.
The second brackets a product of a group in two ways that are equal, so it has none; it costs many terms that stay.
"""
import random
import sys


def number(value):
    return str(value) if value >= 0 else f"(- {-value})"


def inequalities(unknowns):
    dice = random.Random(1)
    point = [dice.randint(-50, 50) for _ in range(unknowns)]
    for index in range(unknowns):
        yield f"(declare-const x{index} Real)"
    for _ in range(2 * unknowns):
        factors = [dice.randint(-9, 9) for _ in range(unknowns)]
        limit = sum(factor * at for factor, at in zip(factors, point)) + dice.randint(0, 3)
        terms = " ".join(f"(* {number(factor)} x{index})" for index, factor in enumerate(factors))
        yield f"(assert (<= (+ {terms}) {number(limit)}))"


def product(terms):
    yield "(declare-sort S 0) (declare-fun f (S S) S) (declare-fun i (S) S) (declare-const e S)"
    yield "(assert (forall ((x S) (y S) (z S)) (! (= (f (f x y) z) (f x (f y z))) :pattern ((f (f x y) z)))))"
    yield "(assert (forall ((x S)) (! (= (f e x) x) :pattern ((f e x)))))"
    yield "(assert (forall ((x S)) (! (= (f (i x) x) e) :pattern ((i x)))))"
    for index in range(terms):
        yield f"(declare-const c{index} S)"
    left, right = "c0", f"c{terms - 1}"
    for index in range(1, terms):
        left, right = f"(f {left} c{index})", f"(f c{terms - 1 - index} {right})"
    yield f"(assert (not (= {left} {right})))"


def question(status, lines):
    print("(push)", *lines, f"(set-info :status {status})", "(check-sat)", "(pop)", sep="\n")


question("sat", inequalities(int(sys.argv[1])))
question("unsat", product(int(sys.argv[2])))
