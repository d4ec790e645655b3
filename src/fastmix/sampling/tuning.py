"""Constants of samplers that tune: sizes, shares of a time limit and tolerances, grouped by the file that uses them.

None of them changes what a sampler converges to; those of verdicts decide when an answer is called ``ok``. Where no
script is named, the value was not measured: it is a round number of the right size.
"""

from __future__ import annotations

__all__ = [
    "ACCURACY_CHECK_SWEEPS", "ACCURACY_MIN_BATCHES", "ADAPT_SHARE", "ANNEALED_ROUNDING", "ANNEALING_SHARE",
    "ANNEAL_BATCH_UPDATES", "ANNEAL_END_SWEEPS", "BATCHES_AT_END", "BATCH_ROUNDS", "BLOCKS_PER_THREAD", "BLOCK_CHAINS",
    "BLOCK_ENTRIES", "BLOCK_SWEEPS", "BOUND_CHAINS", "BOUND_MAX_STEPS", "BOUND_MIN_STEPS", "BOUND_SHARE", "BURN_SHARE",
    "BYTES_PER_CHAIN", "BYTES_PER_DRAWN_STATE", "BYTES_PER_SUM", "CERTIFIED_BIAS", "CERTIFIED_MAX_UPDATES",
    "CERTIFY_SHARE", "COLLECTING_SHARE", "CONSTANT_TOLERANCE", "DEVICE_BURN_SHARE", "DEVICE_LADDERS", "DEVICE_STATES",
    "DISAGREEMENT", "EDGE_CONFIGURATIONS", "ENERGY_ANNEALING_STEPS", "ENERGY_ANNEALING_SWEEPS", "ENERGY_BLOCK_UPDATES",
    "ENERGY_FIRST_STEP", "ENERGY_KNOTS_PER_DEVIATION", "ENERGY_LAST_STEP", "ENERGY_LEARNING_SHARE",
    "ENERGY_LEAST_BLOCK", "ENERGY_LEAST_VISITS", "ENERGY_LOOKS", "ENERGY_LOOK_SHARE", "ENERGY_SERIES", "ENERGY_SWEEPS",
    "ENERGY_WALKERS", "ENTRY_SECONDS", "FIRST_LADDER_CHAINS", "FIRST_LADDER_STATES", "FIRST_LADDER_SWEEPS",
    "FIRST_PHASE_ROUNDS", "FIRST_STEP_DIVISOR", "FIRST_STEP_ROUNDS", "FIRST_STEP_UPDATES", "FIRST_STEP_VISITS",
    "FORBIDDEN_START_SWEEPS", "HARDLY_VISITED", "HOUDAYER_MAX_NEIGHBORS", "LADDER_SHARE", "LARGEST_STEP",
    "LEAST_BARRIER", "LEAST_BURN_SHARE", "LEAST_REJECTION", "LOG_Z_SIGMAS", "LONGEST_STAY", "MAX_ANNEALING_STEPS",
    "MAX_BURN_IN", "MAX_CHAIN_CUTS", "MAX_CHAIN_SITES", "MAX_ENERGY_KNOTS", "MAX_ENSEMBLES", "MAX_FLIPPED_STATES",
    "MAX_LADDER_R_HAT", "MAX_PAST_EPOCHS", "MAX_PHASES", "MAX_RUNGS", "MAX_R_HAT", "MAX_SWEEPS_FOR_ACCURACY",
    "MAX_TEMPERED_STATES", "MEAN_FIELD_SWEEPS", "MIN_AGREEING_CHAINS", "MIN_BATCH_SWEEPS", "MIN_BATCH_SWEEPS_OF_MANY",
    "MIN_CHAINS", "MIN_ENSEMBLES", "MIN_ENSEMBLES_IN_HASTE", "MIN_ESS", "MIN_LADDER_ROUNDS", "MIN_MEMORIES",
    "MIN_MODE_OVERLAP", "MIN_PARTS", "MIN_POPULATION", "MIN_ROUNDS_OF_ENSEMBLES", "MIN_TEMPERED_BURN_IN", "MIN_TRIPS",
    "MISSED_PHASE_MARGIN", "MISSED_SIGMAS", "MODES_SHARE", "MODES_SHARE_OF_ANNEALING", "NO_VARIATION", "NUM_BATCHES",
    "NUM_CHAINS", "NUM_SWEEPS", "PAIRS_EVERY", "PAIR_SHARE", "PHASE_LADDERS", "PHASE_ROUNDING", "PLANNING_MARGIN",
    "REJECTION", "RESAMPLING_SPREAD", "ROUND_UPDATES", "RUN_SHARE", "SAME_PHASE", "SCOUT_CHAINS", "SCOUT_SHARE",
    "SETTLED_ROUNDS", "SHARED_CHAINS", "SHARED_LANES", "SHOWN_STATES", "SNAPSHOT_SECONDS", "STARTS_SHARE",
    "SUM_SECONDS", "SWINGS_SHARE", "TEMPERED_BURN_SHARE", "TEMPERED_NUM_SWEEPS", "UNSEEN", "UPDATES_BETWEEN_CHECKS",
    "UPDATES_PER_BATCH", "VISIT_SECONDS", "WEIGHT_SHARES",
]  # fmt: skip

# -- plans.py: how many chains and sweeps there are -----------------------------------------------------------------

#: Sweeps of every chain that are averaged, where nobody said how many. Not measured: a round number.
NUM_SWEEPS = 10_000

#: Chains of a run that was not told how many. Not measured: fills the lanes of a packed word (64 bits).
NUM_CHAINS = 64

#: Chains that a run has at least, however large the model, so that R-hat can compare them. Not measured.
MIN_CHAINS = 4

#: Variables of all chains together, beyond which there are fewer chains: more sweeps of fewer chains are then worth
#: more in the same time, because every chain burns in and has its own sums. Not measured by a committed script.
MAX_CHAIN_SITES = 1 << 20

#: States but one of every variable, of all chains together, beyond which there are fewer chains, for the same reason.
MAX_CHAIN_CUTS = 1 << 22

#: Updates of all chains together that a certified burn-in may take: about an hour. Not measured.
CERTIFIED_MAX_UPDATES = 1e12

#: Bias of every marginal that a certificate is asked for where no accuracy was given (total variation). Not measured.
CERTIFIED_BIAS = 1e-3

#: Sweeps that a certified burn-in may have where no accuracy was given: half of the sweeps that follow it.
MAX_BURN_IN = NUM_SWEEPS // 2

#: Share of the time left for each certificate of a run with an accuracy. Not measured.
CERTIFY_SHARE = 0.2

#: Bytes of a chain beside its states and sums: its generator, its position and what Python keeps.
BYTES_PER_CHAIN = 48

#: Bytes of one state of a draw: one as kept, one stacked, and four 8-byte arrays in mapping it to the original model.
BYTES_PER_DRAWN_STATE = 34

# -- runs.py: a run of chains in batches -----------------------------------------------------------------------------

#: Batches of a run, whose means give the standard errors. Not measured: enough for 10 % on a standard error.
NUM_BATCHES = 64

#: Updates of a batch at most (about a second), so that an interrupt loses little. Not measured.
UPDATES_PER_BATCH = 2e8

#: Sweeps of a batch at least, of a few chains and of many: taking sums costs more than some sweeps.
#: Checked by benchmarks/limits.py.
MIN_BATCH_SWEEPS = 4
MIN_BATCH_SWEEPS_OF_MANY = 25

#: The first step after which the clock is read is this part of the longest. Not measured.
FIRST_STEP_DIVISOR = 64
#: Neighbors that the first step looks at, in all chains, unless a single sweep has more: a tenth of a second in dense
#: graphs. Checked by benchmarks/limits.py.
FIRST_STEP_VISITS = 2e7

#: Share of a time limit that the burn-in is planned to take. Not measured: as without a limit.
BURN_SHARE = 0.1

#: Share of the time for sweeps that a burn-in has at least where the planned sweeps do not fit the time.
LEAST_BURN_SHARE = 0.25

#: Planned sweeps over those that fit the time that is left: the clock then ends them. Not measured.
PLANNING_MARGIN = 1.05

#: Seconds to take the sum of a state and a chain, to add it to the statistics, whose memory is first touched then, and
#: to judge it: measured on a busy machine with 26 million of them.
#: Checked by benchmarks/limits.py.
SUM_SECONDS = 1e-7

#: Share of a time limit that pairs of states of edges have in any case. Not measured.
PAIR_SHARE = 0.05

#: Configurations of every chain (or ladder) that edge marginals are averaged over. Not measured.
EDGE_CONFIGURATIONS = 1000

# -- run_chains.py: from the start of the chains to the verdict -------------------------------------------------------

#: Chains that go to a worker together where they are swept side by side: fewer are slower each.
#: Not measured by a committed script.
SHARED_CHAINS = 32

#: Chains of a run below which further chains ("scouts") look at the modes for which it has no room. Not measured.
SCOUT_CHAINS = 16

#: Shares of the time that is left: for the search for modes, for starts, for scouts, and for the swings of log-odds
#: that standard errors ask for. Not measured.
MODES_SHARE = 0.1
STARTS_SHARE = 0.1
SCOUT_SHARE = 0.1
SWINGS_SHARE = 0.1

# -- starts.py -------------------------------------------------------------------------------------------------------

#: Variables, on average, in which a mode must differ from the answer for its chains to show how long they remember it.
#: Not measured.
MIN_MODE_OVERLAP = 0.5

# -- diagnostics.py: standard errors and verdicts --------------------------------------------------------------------

#: Batch means that differ by less than this differ by rounding alone.
NO_VARIATION = 1e-12

#: Share of the variance that is left within parts, at which they count as constant: a thousand roundings.
CONSTANT_TOLERANCE = 1e-9

#: Parts of all chains together that a run is divided into at least, for R-hat and long autocorrelations.
#: Checked by tests/sampling/test_standard_errors.py.
MIN_PARTS = 16

#: Limits of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021) on R-hat and on the effective sample size.
MAX_R_HAT = 1.01
MIN_ESS = 400.0

#: Chains that can vouch for each other without a certificate. Checked by benchmarks/ok_shares.py.
MIN_AGREEING_CHAINS = 3

#: Times that all chains together must have had the time to come back to where some of them were started.
#: Checked by benchmarks/ok_shares.py.
MIN_MEMORIES = 100.0

#: Visits to a state from which on its autocorrelation can be seen. Checked by benchmarks/ok_shares.py.
HARDLY_VISITED = 10.0

#: Visits that something never seen may have missed: exp(-2 * 1.5) = 5 %.
UNSEEN = 1.5

# -- clusters.py -----------------------------------------------------------------------------------------------------

#: Logarithm of the longest stay in a state (in sweeps), so that it is a finite number: below log(1.8e308).
LONGEST_STAY = 700.0

#: Blocks of chains for every thread, so that a slow one is not waited for. Not measured.
BLOCKS_PER_THREAD = 4

# -- perfect_sample.py -----------------------------------------------------------------------------------------------

#: Doublings of the past that every draw has streams of random numbers for: 2^47 sweeps are never reached.
MAX_PAST_EPOCHS = 48

#: Updates between two looks at the clock: tens of milliseconds. Not measured.
UPDATES_BETWEEN_CHECKS = 1_000_000

# -- anneal.py, populations.py, annealed_errors.py -------------------------------------------------------------------

#: Steps of annealing at most: chains that all begin alike would ask for steps of no length.
MAX_ANNEALING_STEPS = 10_000

#: Standard deviation of the logarithms of the weights of a step up to which resampling keeps several chains.
#: Not measured by a committed script.
RESAMPLING_SPREAD = 1.0

#: Shares of a time limit: where annealing ends, and where averaging ends. Checked by benchmarks/limits.py.
ANNEALING_SHARE = 0.7
COLLECTING_SHARE = 0.9

#: Sweeps whose seconds are left for the averages, which go through all states and sums, too.
#: Checked by benchmarks/limits.py.
ANNEAL_END_SWEEPS = 12

#: Growth of the couplings in one step at most, where their energy hardly varies. Not measured.
LARGEST_STEP = 0.1

#: States at both ends of all edges up to which modes are looked at with every variable changed. Not measured.
MAX_FLIPPED_STATES = 2e6

#: Looks at the variance of the energy that the length of the first step follows from, and their share of the time.
#: Not measured.
ENERGY_LOOKS = 8
ENERGY_LOOK_SHARE = 0.1

#: Updates between two looks at the clock: a fraction of a second. Not measured.
ANNEAL_BATCH_UPDATES = 1e7

#: Share of a time limit for configurations of large weight to compare with. Not measured.
MODES_SHARE_OF_ANNEALING = 0.05

#: Standard errors of the mean log-weight of the chains, beyond which they have missed something: a false alarm of
#: less than 1e-6.
MISSED_SIGMAS = 5.0

#: Rounding of sums of millions of terms, relative to their size.
ANNEALED_ROUNDING = 1e-9

#: Mean standard error of a probability over the populations above which they disagree.
#: Checked by benchmarks/ok_shares.py.
DISAGREEMENT = 0.02

# -- tempering/ladder.py ---------------------------------------------------------------------------------------------

#: Rounds between two exchanges of clusters between paired ladders. Measured by benchmarks/moves.py.
PAIRS_EVERY = 20

#: Replicas that go to a worker together: fewer are slower each. Not measured by a
#: committed script.
SHARED_LANES = 128

# -- tempering/phases.py ---------------------------------------------------------------------------------------------

#: Phases that are looked for, and sweeps of mean field for each. Not measured.
MAX_PHASES = 8
MEAN_FIELD_SWEEPS = 50

#: Lower bounds on log Z that differ by less are those of one phase.
SAME_PHASE = 1e-6

#: By how much a bound on log Z exceeds an estimate that misses its phase. Not measured.
MISSED_PHASE_MARGIN = 1.0

#: Rounding of a sum of millions of terms, relative to their size.
PHASE_ROUNDING = 1e-9

#: One ladder of so many starts its highest rung in a phase, whatever is known of the phase. Not measured.
PHASE_LADDERS = 4

# -- tempering/rungs.py ----------------------------------------------------------------------------------------------

#: Rungs of a ladder at most. Not measured: a ladder of a million variables has about two thousand.
MAX_RUNGS = 10_000

#: Rejection rate r of exchanges that rungs are placed for. When the replicas of a ladder run one after another, a
#: non-reversible exchange makes a round trip in 2 + 2 K r / (1 - r) rounds for r = Lambda / K, and a round costs K:
#: the best rate is 1/2, with K = 2 Lambda + 1 rungs.
REJECTION = 0.5

#: Rejection rate that two rungs which always exchange count with: it keeps the barrier strictly increasing.
LEAST_REJECTION = 1e-3

#: Shares of the descending weights at which the bound on log Z is looked for. Not measured.
WEIGHT_SHARES = (0.125, 0.25, 0.5, 0.75, 0.875)

#: Sweeps of the chains at the start of a path with forbidden pairs, where there are no exact draws. Not measured.
FORBIDDEN_START_SWEEPS = 20

# -- tempering/run.py, first_ladder.py, capacity.py ------------------------------------------------------------------

#: Rounds to begin with while their time is not known, and updates beyond which it is a single round. Not measured.
FIRST_STEP_ROUNDS = 4
FIRST_STEP_UPDATES = 10_000_000

#: Rounds before the ladder is first adapted. Not measured.
FIRST_PHASE_ROUNDS = 16

#: Configurations that place the first ladder, the variables of all of them beyond which there are fewer, and the
#: fewest of them: with fewer, kernels for dense graphs take longer to set up. Checked by benchmarks/limits.py.
FIRST_LADDER_CHAINS = 64
FIRST_LADDER_STATES = 1 << 24
MIN_POPULATION = 8

#: Sweeps of every configuration at each rung of the first ladder. Not measured.
FIRST_LADDER_SWEEPS = 3

#: Seconds of an update for every neighbor, in large models, and of chains for every parameter, where they are set up.
#: Checked by benchmarks/limits.py.
VISIT_SECONDS = 1e-8
ENTRY_SECONDS = 5e-8

#: Rounds of a batch at least, in units of the time that it takes to add one to the statistics, and such times that
#: are kept for the last batch and the answer. Checked by benchmarks/limits.py.
BATCH_ROUNDS = 4.0
BATCHES_AT_END = 2.0

#: Rounds that a ladder must have time for, if a time limit was asked for. Checked by benchmarks/limits.py.
MIN_LADDER_ROUNDS = 8

#: Ensembles at least and at most, and updates of a round that more than the fewest may take. Not measured.
MIN_ENSEMBLES = 4
MAX_ENSEMBLES = 16
ROUND_UPDATES = 2_000_000

#: Ensembles where an asked-for time limit has no room for so many rounds of four: the fewest with a standard error.
#: Checked by benchmarks/limits.py.
MIN_ENSEMBLES_IN_HASTE = 2
MIN_ROUNDS_OF_ENSEMBLES = 2

#: Ladders on a GPU, and the states of all their replicas at most. Checked by benchmarks/gpu_temper.py.
DEVICE_LADDERS = 1024
DEVICE_STATES = 1 << 28

#: Bytes of an ensemble and a state: its sums, and the temporaries of the statistics.
BYTES_PER_SUM = 100.0

#: Rounds after which replicas that have missed a phase have missed it for good. Not measured.
SETTLED_ROUNDS = 100

#: Shares of a time limit up to which the first ladder, its adaptation, the burn-in (on a GPU, whose many ladders leave
#: little noise for what is left of the start to hide in, a larger one) and the averages may go on. The rest is for the
#: bound on log Z; without a limit the bound takes as many updates beyond the run as ``BOUND_SHARE`` of them.
#: Not measured by a committed script.
LADDER_SHARE = 0.1
ADAPT_SHARE = 0.15
TEMPERED_BURN_SHARE = 0.4
DEVICE_BURN_SHARE = 0.5
RUN_SHARE = 0.92
BOUND_SHARE = 0.08

#: Independent annealed chains behind the bound on log Z, and steps of annealing: for a bound to be worth it, and that
#: a GPU has time for. Not measured.
BOUND_CHAINS = 128
BOUND_MIN_STEPS = 16
BOUND_MAX_STEPS = 1 << 16

#: Batches before an accuracy can be believed, and sweeps between two looks at it, at least. Not measured.
ACCURACY_MIN_BATCHES = 8
ACCURACY_CHECK_SWEEPS = 64

#: Seconds between two snapshots that are kept for an interrupt; they take a tenth of the time at most.
SNAPSHOT_SECONDS = 0.5

# -- tempering/temper.py ---------------------------------------------------------------------------------------------

#: Sweeps of every replica that are averaged by default, and where an accuracy decides. Not measured.
TEMPERED_NUM_SWEEPS = 5_000
MAX_SWEEPS_FOR_ACCURACY = 1_000_000

#: Draws kept at every rung where rungs are asked for and no number is: error bars of a draw in five sweeps are hardly
#: larger than those of all. Not measured.
DRAWS_OF_RUNGS = 1_000

#: Share that two neighboring rungs must have in each other's draws for temperatures between them, as is customary for
#: multistate acceptance ratios; and draws that those of all rungs must be worth there, as a share of those of a rung.
#: Not measured.
LEAST_RUNG_OVERLAP = 0.03
LEAST_EFFECTIVE_SHARE = 0.1

#: Ladders of an ensemble up to which overlaps are taken of all pairs of them. Not measured.
MAX_LADDERS_IN_PAIRS = 4

#: Sweeps of the burn-in at least, by default: the ladder is adapted in them. Not measured.
MIN_TEMPERED_BURN_IN = 200

#: Neighbors of a variable on average up to which clusters of differing variables are worth a try.
#: Measured by benchmarks/moves.py.
HOUDAYER_MAX_NEIGHBORS = 6.0

#: States of a variable at most: replicas keep them in bytes.
MAX_TEMPERED_STATES = 256

#: Round trips of an ensemble on average, and R-hat over the ensembles, for the verdict ``ok``.
#: Checked by benchmarks/ok_shares.py.
MIN_TRIPS = 10.0
MAX_LADDER_R_HAT = 1.1

#: Standard errors by which a lower bound may exceed an estimate of log Z.
LOG_Z_SIGMAS = 3.0

#: States of a configuration that a note shows: a line.
SHOWN_STATES = 24

# -- block_gibbs.py ----------------------------------------------------------------------------------------------------

#: Chains, entries of the tables of a block, and sweeps, where the user says nothing. Not measured: a block is drawn in
#: about a millisecond.
BLOCK_CHAINS = 32
BLOCK_ENTRIES = 5_000.0
BLOCK_SWEEPS = 1_000

# -- multicanonical.py, energy_walks.py, energy_phases.py: weights that depend on the energy --------------------------

#: Walkers, and sweeps of each that are averaged, where nobody said how many. Not measured: a walker must make round
#: trips on its own, so that few walkers of many sweeps tell more than many of few.
ENERGY_WALKERS = 8
ENERGY_SWEEPS = 100_000

#: Scales of the tables at which canonical chains give the first weights, and their sweeps at each. Not measured.
ENERGY_ANNEALING_STEPS = 24
ENERGY_ANNEALING_SWEEPS = 40

#: Knots of the weights per standard deviation of the energy of independent variables, and at most. A Gibbs sweep moves
#: the energy by about as much: finer knots would tell a chain nothing, and small models have no energies between them.
ENERGY_KNOTS_PER_DEVIATION = 1.0
MAX_ENERGY_KNOTS = 2000

#: Steps in nats by which visited energies sink at first and at last, and the visits that each knot has, as a share of
#: the mean, when the step is halved. Not measured: weights that are off by a tenth of a nat cost hardly any sweeps.
ENERGY_FIRST_STEP = 0.25
ENERGY_LAST_STEP = 0.005
ENERGY_LEAST_VISITS = 0.3

#: Share of the time for learning the weights. Not measured.
ENERGY_LEARNING_SHARE = 0.5

#: Updates of all walkers between two looks at the clock (some hundredths of a second). Checked by benchmarks/limits.py.
ENERGY_BLOCK_UPDATES = 2e6

#: Updates of one walker between two looks at what was learnt, at least: calls take as long as 1,000 updates.
ENERGY_LEAST_BLOCK = 4000

#: Energies of a run that are kept at most, 32 MiB: every second sweep where there would be more, and so on.
ENERGY_SERIES = 1 << 22

#: Nats by which the density of energies sinks between two peaks that count as two phases: it is halved.
LEAST_BARRIER = 0.7
