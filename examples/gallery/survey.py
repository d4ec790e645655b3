"""Survey data.

The answers of 2,000 people (made up) to twelve questions become a network: an l1 penalty decides which questions are
linked, 1,000 other people say how good it is, and then it answers questions of its own. Any frame of pandas or
polars, or a CSV file (`fastmix learn answers.csv`), does in place of `draw_answers`; `examples/survey.py` has more.
"""

from survey import draw_answers

import fastmix

answers = draw_answers(3000, seed=1)
learnt = fastmix.learn(answers[:2000], edges="l1", l1=0.06, seed=0)
print(learnt.model, fastmix.score(learnt.model, answers[2000:]), sep="\n")
result = fastmix.infer(learnt.model, evidence={"hours are long": "agree", "street is noisy": "agree"})
print(result.to_frame().query("variable == 'sleep well'"))
result.plot()
