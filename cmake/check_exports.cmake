# Fails unless the only symbol that OBJECTS defines for others is the function GETTER (an inline function with external
# linkage, compiled here for one instruction set, could replace the portable copy at link time).
execute_process(COMMAND ${NM} --demangle --extern-only --defined-only ${OBJECTS}
                OUTPUT_VARIABLE symbols RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${NM} failed on ${OBJECTS}")
endif()
string(STRIP "${symbols}" symbols)
if(NOT symbols MATCHES "^[0-9a-f]+ T tenon::${GETTER}\\(\\)$")
  message(FATAL_ERROR "expected one exported symbol, tenon::${GETTER}(); found:\n${symbols}")
endif()
