# The command line.
#
# A model is written, tested, projected, and answered by every method, with a picture of their errors; `map` has its
# most probable configuration. Exit code 1 of
# `certify` says that there is no certificate.
fastmix generate ising-grid --rows 10 --cols 10 --coupling-max 2 --attractive --seed 0 -o grid.uai
fastmix certify grid.uai --accuracy 0.01 --criterion dobrushin || echo "exit code $?"
fastmix project grid.uai --norm-bound 0.95 -o mixing.uai
fastmix certify mixing.uai --accuracy 0.01 --criterion dobrushin
fastmix map grid.uai -o grid.MPE -o grid.csv && head -3 grid.csv
fastmix compare grid.uai --time-limit 2 --seed 1 -o out
