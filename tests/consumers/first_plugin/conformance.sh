# Run in the project of docs/plugins/first-plugin.md, after its commands; shown by docs/plugins/testing.md.
# [commands]
tenon conformance build/release/nimble.so --list                      # what will be checked
tenon conformance build/release/nimble.so                             # all of it
tenon conformance build/release/nimble.so --filter 'component.*'      # what holds for every component
tenon conformance build/release/nimble.so --exclude run.resumes --seed 7
# [/commands]
