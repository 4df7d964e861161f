# The plugins of build.cmake in runs: from two folders by relative paths, cut off and resumed, evaluated, exported,
# compared; and what their users are told when something is wrong.
include(${CMAKE_CURRENT_LIST_DIR}/home.cmake)
set(elsewhere ${WORK}/elsewhere)   # the second working directory
file(REMOVE_RECURSE ${elsewhere} ${project}/runs ${project}/collected)
file(MAKE_DIRECTORY ${elsewhere} ${project}/collected)

# in(FOLDER COMMAND...): runs `tenon COMMAND...` there.
macro(in folder)
  step("tenon" ${CMAKE_COMMAND} -E chdir ${folder} ${tenon} ${ARGN})
endmacro()
# refused(STATUS PATTERN COMMAND...): `tenon COMMAND...` ends with this status and says so; in elsewhere.
function(refused status pattern)
  execute_process(COMMAND ${tenon} ${ARGN} WORKING_DIRECTORY ${elsewhere} RESULT_VARIABLE found OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(NOT found EQUAL status OR NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "expected status ${status} and '${pattern}', found ${found}: tenon ${ARGN}\n${output}")
  endif()
endfunction()
# fact(VARIABLE RUN KEY...): from summary.json.
function(fact variable run)
  file(READ ${run}/1/summary.json summary)
  string(JSON value GET "${summary}" ${ARGN})
  set(${variable} ${value} PARENT_SCOPE)
endfunction()
# same_end(A B): both completed, with equal bits of weights and of all other state.
function(same_end a b)
  foreach(key status weights_hash state_hash steps deterministic)
    fact(x ${a} ${key})
    fact(y ${b} ${key})
    if(NOT x STREQUAL y)
      message(FATAL_ERROR "${key} is ${x} in ${a} and ${y} in ${b}")
    endif()
  endforeach()
  fact(x ${a} status)
  if(NOT x STREQUAL completed)
    message(FATAL_ERROR "${a} ended as ${x}")
  endif()
endfunction()
# below(LIMIT RUN KEY...): the number in summary.json is less.
function(below limit run)
  fact(x ${run} ${ARGN})
  if(NOT x LESS limit)
    message(FATAL_ERROR "${ARGN} of ${run} is ${x}, expected less than ${limit}")
  endif()
endfunction()
function(contains text)   # contains(TEXT PATTERN...)
  foreach(pattern IN LISTS ARGN)
    if(NOT text MATCHES "${pattern}")
      message(FATAL_ERROR "there is no '${pattern}' in:\n${text}")
    endif()
  endforeach()
endfunction()

# All seven in one file. A uniform guess of a byte costs ln 256 = 5.5, and the texts have 8 x 4 x 6 endings.
in(${project} train words.toml --quiet)
set(first ${project}/runs/words)
below(1.2 ${first} metrics val/loss)
file(STRINGS ${first}/1/metrics.jsonl line LIMIT_COUNT 1 REGEX "\"train\", \"name\": \"loss\"")
string(JSON loss GET "${line}" value)
if(NOT loss GREATER 5)
  message(FATAL_ERROR "the first loss is ${loss}, expected about 5.5")
endif()
file(READ ${first}/1/plugins.lock lock)
foreach(name ademamix gates json_lines prometheus rotary rotary_lm)
  contains("${lock}" "author.${name}\"[^\n]*\n[^[]*${project}/build/${name}/${name}.so|${project}/build/${name}/${name}.so[^[]*author.${name}\"")
endforeach()

# collected(PATTERN...): the collector's file is whole, well-formed, and has these lines.
function(collected)
  file(GLOB files RELATIVE ${project}/collected ${project}/collected/*)
  if(NOT files STREQUAL tenon.prom)
    message(FATAL_ERROR "the collector's folder holds '${files}', expected tenon.prom alone")
  endif()
  file(READ ${project}/collected/tenon.prom text)
  if(NOT text MATCHES "\n$")
    message(FATAL_ERROR "the last line of tenon.prom has no end:\n${text}")
  endif()
  file(STRINGS ${project}/collected/tenon.prom lines)
  set(family "")
  foreach(line IN LISTS lines)
    if(line MATCHES "^# (HELP|TYPE) ([a-z_]+) (.+)$")
      set(kind ${CMAKE_MATCH_1})
      set(family ${CMAKE_MATCH_2})
      if(kind STREQUAL TYPE AND NOT CMAKE_MATCH_3 MATCHES "^(counter|gauge)$")
        message(FATAL_ERROR "no type of Prometheus: ${line}")
      endif()
    elseif(NOT line MATCHES "^${family}{run=\"[a-z]+\"(,[a-z]+=\"[a-z_]+\")*} (NaN|[+-]Inf|-?[0-9.]+(e[+-][0-9]+)?)$")
      message(FATAL_ERROR "no sample of the family '${family}': ${line}\n${text}")
    endif()
  endforeach()
  contains("${text}" ${ARGN})
endfunction()
fact(loss ${first} metrics train/loss)
collected("tenon_slots_total{run=\"words\"} 60\n" "tenon_samples_total{run=\"words\"} 960\n" "tenon_loss{run=\"words\"} ${loss}\n"
  "split=\"val\",name=\"loss\"" "tenon_run_finished{run=\"words\",status=\"completed\"} 1\n")

# From a second working directory the same files serve, and give the same bits.
in(${elsewhere} train ../project/words.toml --quiet --run-dir again)
same_end(${first} ${elsewhere}/again)

# resumed(FILE RUN RANK STEP): a rank dies in a slot, and the run that goes on has the bits of RUN.
function(resumed file run rank step)
  set(name crashed_${file})
  file(WRITE ${elsewhere}/${name}.toml
    "extends = [\"../project/${file}.toml\"]\n[[fault]]\nrank = ${rank}\nstep = ${step}\nkind = \"crash\"\n")
  refused(1 "rank ${rank} died in slot ${step}" train ${name}.toml --quiet --run-dir ${name})
  collected("run=\"${file}\",status=\"failed\"} 1\n")
  in(${elsewhere} train ${name}.toml --quiet --run-dir ${name} --resume)
  same_end(${run} ${elsewhere}/${name})
  collected("tenon_slots_total{run=\"${file}\"} 60\n" "status=\"completed\"")
endfunction()
resumed(words ${first} 0 45)

# The strategy. With all elements it is the mean of the weights, up to roundings; with a twentieth it still learns and sends a
# twentieth of the elements, each with its place. The one arena is known by its broadcast at the start.
in(${project} train sparse.toml --quiet)
set(sparse ${project}/runs/sparse)
below(2.6 ${sparse} metrics val/loss)
fact(state ${sparse} bytes_by_purpose state)
fact(sent ${sparse} bytes_by_purpose parameter)
math(EXPR expected "6 * 8 * ((${state} / 4 + 19) / 20)")
if(NOT sent EQUAL expected)
  message(FATAL_ERROR "six rounds sent ${sent} bytes, expected ${expected}")
endif()
resumed(sparse ${sparse} 1 47)
in(${elsewhere} train ../project/sparse.toml --quiet --run-dir all --set sync.share=1)
in(${elsewhere} train ../project/sparse.toml --quiet --run-dir mean --set sync.type=local_sgd --set sync.interval=10)
fact(a ${elsewhere}/all metrics val/loss)
fact(b ${elsewhere}/mean metrics val/loss)
string(SUBSTRING ${a} 0 6 a)
string(SUBSTRING ${b} 0 6 b)
if(NOT a STREQUAL b)
  message(FATAL_ERROR "sparse with all elements ends at ${a}, local_sgd at ${b}")
endif()

# The optimizer without its slow average is AdamW, to the bit. `compare` names what parts them.
in(${elsewhere} train ../project/words.toml --quiet --run-dir fast --set optimizer.alpha=0)
in(${elsewhere} train ../project/words.toml --quiet --run-dir adamw --set optimizer.type=adamw --set optimizer.lr=5e-3
  --set optimizer.betas=[0.9,0.99] --set optimizer.weight_decay=0)
in(${elsewhere} compare fast adamw)
contains("${step_output}" "config   optimizer.type\n +A: \"ademamix\"  .[^\n]*words.toml:[0-9]+:[0-9]+.\n +B: \"adamw\""
  "train/loss [^\n]* never\n" "weights: equal bits")
in(${elsewhere} compare again fast)
contains("${step_output}" "first differing input:\n  config   optimizer.alpha\n +A: 2.0 [^\n]*\n +B: 0.0 "
  "train/loss [^\n]* step 2\n" "weights: differ")

# What was trained: measured again, on other data too, and exported under the model's own names.
foreach(run words sparse)   # of sparse the anchor, which is no replica's weights
  fact(loss ${project}/runs/${run} metrics val/loss)
  in(${elsewhere} evaluate ../project/runs/${run} --json)
  string(JSON measured GET "${step_output}" metrics val/loss)
  if(NOT measured EQUAL loss)
    message(FATAL_ERROR "evaluate measures ${measured}, the run ${run} said ${loss}")
  endif()
endforeach()
file(WRITE ${elsewhere}/nonsense.jsonl "{\"text\": \"zzzz qqqq xxxx\"}\n{\"text\": \"0123456789\"}\n")
in(${elsewhere} evaluate again --json --set data.path=nonsense.jsonl --set data.val_fraction=0.5 --set data.batch=1)
string(JSON measured GET "${step_output}" metrics val/loss)
if(NOT measured GREATER 4)
  message(FATAL_ERROR "nonsense costs ${measured}, expected more than 4")
endif()
in(${elsewhere} export again --out words.safetensors)
contains("${step_output}" "26 tensors, 37184 elements, step 60")
file(STRINGS ${elsewhere}/words.safetensors header REGEX "blocks.1.gate.weight" LIMIT_COUNT 1)
contains("${header}" "\"blocks.1.gate.weight\":{\"dtype\":\"F32\",\"shape\":.64,32." "\"embed.weight\"")
refused(2 "words.safetensors exists; choose another --out, or add --overwrite" export again --out words.safetensors)
refused(2 "trains the model 'rotary_lm', which is no language model .it does not offer tenon.model.language/1." generate again
  --prompt Anna)

# Outside bytes that are wrong: file and line, in the words of the author; the file may be named from another folder.
# bad(PATTERN LINE...): a file of these lines is refused.
function(bad pattern)
  string(REPLACE ";" "\n" text "${ARGN}")
  file(WRITE ${elsewhere}/bad.jsonl "${text}\n")
  refused(2 "words.toml:[0-9:]+ plugin author.json_lines .dataset.json_lines.: ${elsewhere}/bad.jsonl:${pattern}" train ../project/words.toml --run-dir bad
    --set data.path=bad.jsonl)
endfunction()
bad("3:12: this is no JSON: syntax error" "{\"text\": \"a\"}" "" "{\"text\": \"b")
bad("2:1: the object has no 'text', only: id, year; option 'key' names" "{\"text\": \"a\"}" "{\"id\": 1, \"year\": 2}")
bad("1:1: expected a text under 'text', found number" "{\"text\": 3}")
refused(2 "cannot find 'none.jsonl'; tried\n +${elsewhere}/none.jsonl\n" check ../project/words.toml --set data.path=none.jsonl)
# A name of an earlier version still works, and says what it is now.
set(renamed "warning: --set data.field=place: option 'field' of dataset.json_lines is now called 'key'")
in(${elsewhere} check ../project/words.toml --set data.field=place)
contains("${step_output}" "${renamed}")
in(${elsewhere} train ../project/words.toml --set data.field=place --set run.steps=2 --run-dir renamed)
contains("${step_output}" "${renamed}")
if(EXISTS ${elsewhere}/bad)
  message(FATAL_ERROR "a refused run left a folder")
endif()

# A plugin that another needs is asked for, with its version, before any of the model's code runs.
set(paths)
foreach(name ademamix json_lines prometheus rotary rotary_lm)
  list(APPEND paths "\"../project/build/${name}\"")
endforeach()
list(JOIN paths "," paths)
refused(3 "rotary_lm.so': it needs the plugin 'author.gates >= 0.2', which is not there. Places searched:\n +.plugins. paths: ${project}"
  check ../project/words.toml --set "plugins.paths=[${paths}]" --set schedule.type=constant)
refused(2 "author.rotary_lm .model.rotary_lm.: model rotary_lm: width 32 is not a multiple of 2 x 3 heads" check
  ../project/words.toml --set model.heads=3)
