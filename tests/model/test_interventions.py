"""Interventions: ``do`` beside cases worked by hand, and beside the truncated product on random networks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest
from test_network import random_network

from fastmix import BayesianNetwork, infer
from fastmix.errors import ModelError

YES = ["no", "yes"]


def sprinkler() -> BayesianNetwork:
    """Clouds decide on the sprinkler and on rain, and both wet the grass."""
    wet = [[[1.0, 0.0], [0.1, 0.9]], [[0.1, 0.9], [0.01, 0.99]]]
    tables = [[0.5, 0.5], [[0.5, 0.5], [0.9, 0.1]], [[0.8, 0.2], [0.2, 0.8]], wet]
    return BayesianNetwork(["cloudy", "sprinkler", "rain", "wet"], [YES] * 4, [[], [0], [0], [1, 2]], tables)


def confounded() -> BayesianNetwork:
    """A cause of both the treatment and the outcome: severity a, treatment b, recovery c."""
    outcome = [[[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.0, 1.0]]]
    tables = [[0.6, 0.4], [[0.7, 0.3], [0.2, 0.8]], outcome]
    return BayesianNetwork(["a", "b", "c"], [YES] * 3, [[], [0], [0, 1]], tables)


def yes(network: BayesianNetwork, variable: str, evidence: Mapping[str, str] | None = None) -> float:
    return float(infer(network.to_model(), evidence=evidence).marginal(variable)[1])


def truncated(network: BayesianNetwork, interventions: Mapping[int, int]) -> np.ndarray:
    """The product of the tables of all variables that are not set, where the others have what they are set to."""
    joint = np.zeros(network.num_states)
    for x in itertools.product(*map(range, network.num_states)):
        if any(x[v] != state for v, state in interventions.items()):
            continue
        free = [i for i in range(network.num_variables) if i not in interventions]
        joint[x] = np.prod([network.tables[i][(*(x[p] for p in network.parents[i]), x[i])] for i in free])
    return joint


def descendants(network: BayesianNetwork, variables: Mapping[int, int]) -> set[int]:
    found = set(variables)
    for i in network.order:
        if found & set(network.parents[i]):
            found.add(i)
    return found


class TestByHand:
    """The two cases of an issue of pgmpy (3543), whose adjustment leaves out what is observed, or what is set."""

    def test_a_parent_of_the_outcome_is_observed(self) -> None:
        done = sprinkler().do({"sprinkler": "yes"})
        assert yes(done, "wet", {"rain": "yes"}) == pytest.approx(0.99)  # the table itself
        assert yes(done, "wet") == pytest.approx(0.5 * 0.9 + 0.5 * 0.99)  # rain stays at one half

    def test_one_intervention_on_the_cause_of_another(self) -> None:
        done = confounded().do({"a": "yes", "b": "yes"})
        assert yes(done, "c") == pytest.approx(1.0)  # and not 0.6 * 0.5 + 0.4 * 1

    def test_seeing_and_doing_differ_where_there_is_a_confounder(self) -> None:
        network = confounded()
        # Seeing b: a is 0.4 * 0.8 / (0.6 * 0.3 + 0.4 * 0.8) = 0.64; doing b leaves it at 0.4.
        assert yes(network, "c", {"b": "yes"}) == pytest.approx(0.36 * 0.5 + 0.64 * 1.0)
        assert yes(network.do({"b": "yes"}), "c") == pytest.approx(0.6 * 0.5 + 0.4 * 1.0)
        assert yes(network.do({"b": "yes"}), "a") == pytest.approx(0.4)
        assert yes(network, "a", {"b": "yes"}) == pytest.approx(0.64)

    def test_causes_of_what_is_set_stay_as_they_are(self) -> None:
        network = sprinkler()
        done = network.do({"wet": "yes"})
        for name in ("cloudy", "sprinkler", "rain"):
            assert yes(done, name) == pytest.approx(yes(network, name))
            assert abs(yes(network, name, {"wet": "yes"}) - yes(network, name)) > 0.01

    def test_probabilities_in_place_of_a_state(self) -> None:
        network = confounded()
        done = network.do({"b": [0.25, 0.75]})
        of_states = [yes(network.do({"b": state}), "c") for state in YES]
        assert yes(done, "c") == pytest.approx(0.25 * of_states[0] + 0.75 * of_states[1])


def test_random_networks_against_the_truncated_product() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        network = random_network(rng, int(rng.integers(2, 6)))
        chosen = rng.choice(network.num_variables, int(rng.integers(1, network.num_variables)), replace=False)
        interventions = {int(v): int(rng.integers(network.num_states[v])) for v in chosen}
        done = network.do(interventions)
        joint = truncated(network, interventions)
        assert joint.sum() == pytest.approx(1.0)
        after = infer(done.to_model(), method="exact")
        before = infer(network.to_model(), method="exact")
        for i in range(network.num_variables):
            others = tuple(v for v in range(network.num_variables) if v != i)
            np.testing.assert_allclose(after.marginal(i), joint.sum(axis=others), atol=1e-12)
            if i not in descendants(network, interventions):
                np.testing.assert_allclose(after.marginal(i), before.marginal(i), atol=1e-12)


def test_what_does_not_lead_to_the_variables_asked_about_can_be_left_out() -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        network = random_network(rng, int(rng.integers(2, 7)))
        n = network.num_variables
        target, seen = rng.choice(n, 2, replace=False).tolist()
        state = int(network.sample(1, seed=int(rng.integers(1000)))[0, seen])
        names = [network.variable_names[v] for v in (target, seen)]
        small = network.ancestral(names)
        assert set(small.variable_names) <= set(network.variable_names)
        evidence = {names[1]: network.state_names[seen][state]}
        whole = infer(network.to_model(), evidence=evidence, method="exact")
        part = infer(small.to_model(), evidence=evidence, method="exact")
        np.testing.assert_allclose(part.marginal(names[0]), whole.marginal(names[0]), atol=1e-12)
        assert part.log_z == pytest.approx(whole.log_z, abs=1e-12)
        assert network.ancestral(range(n)) == network
    assert sprinkler().ancestral([2]).variable_names == ("cloudy", "rain")
    with pytest.raises(ModelError, match="at least one"):
        sprinkler().ancestral([])
    with pytest.raises(ModelError, match="snow"):
        sprinkler().ancestral(["snow"])


def test_the_network_itself_stays_as_it_is() -> None:
    network = sprinkler()
    done = network.do({"rain": "no"})
    assert network == sprinkler()
    assert done.parents == ((), (0,), (), (1, 2))
    assert done.tables[2].tolist() == [1.0, 0.0]
    assert network.do({}) == network
    assert network.do({2: 0}) == done


@pytest.mark.parametrize(
    ("interventions", "message"),
    [
        ({"snow": "yes"}, "variable .*got 'snow'"),
        ({"rain": "maybe"}, "state of variable 'rain' .*got 'maybe'"),
        ({"rain": 2}, "got 2"),
        ({"rain": True}, "got True"),
        ({"rain": "yes", 2: 0}, "once, got rain again"),
        ({"rain": [0.5, 0.6]}, "'rain' must have rows"),
        ({"rain": [0.5, 0.2, 0.3]}, "'rain' must have shape"),
        (["rain"], "^interventions"),
    ],
)
def test_refused(interventions: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        sprinkler().do(interventions)
