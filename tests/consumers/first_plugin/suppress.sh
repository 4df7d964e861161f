# Run behind conformance.sh: a suppressed check is shown and not run.
tenon conformance build/release/nimble.so --cases suppress.toml --filter run.repeats --filter plugin.loads | tee suppressed
grep -q 'left out' suppressed
grep -q 'averages over threads in the order in which they end' suppressed
