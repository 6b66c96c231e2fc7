# The web page of `tokamak serve`: compiles src/server/page/ and four Debian libraries into one C++
# file. The libraries are used from the system, never copied into the tree.
option(TOKAMAK_PAGE
  "Build the web page in (needs libjs-marked, node-dompurify, libjs-highlight.js, libjs-katex)" ON)

# tokamak_page_library(VARIABLE PACKAGE FILE ...): caches the path of the first existing file as
# VARIABLE, and the package's copyright file as <VARIABLE>_NOTICE.
function(tokamak_page_library variable package)
  foreach(file ${ARGN})
    if(NOT ${variable} AND EXISTS ${file})
      set(${variable} ${file} CACHE FILEPATH "JavaScript of ${package}")
    endif()
  endforeach()
  foreach(file /usr/share/doc/${package}/copyright)
    if(NOT ${variable}_NOTICE AND EXISTS ${file})
      set(${variable}_NOTICE ${file} CACHE FILEPATH "Licence of ${package}")
    endif()
  endforeach()
  if(NOT ${variable} OR NOT ${variable}_NOTICE)
    message(FATAL_ERROR
      "The web page needs ${package}, which is not installed. On Debian: apt-get install ${package}. "
      "Elsewhere give the script and its licence with -D${variable}=FILE -D${variable}_NOTICE=FILE, "
      "or build without the page: -DTOKAMAK_PAGE=OFF")
  endif()
endfunction()

# tokamak_page_source(OUTPUT): the C++ file, made again when a part of the page changes.
function(tokamak_page_source output)
  set(folder ${CMAKE_SOURCE_DIR}/src/server/page)
  set(assets "")
  set(notices "")
  set(inputs "")
  if(TOKAMAK_PAGE)
    find_program(TOKAMAK_GZIP gzip REQUIRED)
    set(javascript /usr/share/javascript)
    set(nodejs /usr/share/nodejs)
    tokamak_page_library(TOKAMAK_MARKED_JS libjs-marked
      ${javascript}/marked/marked.umd.min.js ${javascript}/marked/marked.min.js)
    tokamak_page_library(TOKAMAK_PURIFY_JS node-dompurify
      ${nodejs}/dompurify/dist/purify.min.js)
    tokamak_page_library(TOKAMAK_HIGHLIGHT_JS libjs-highlight.js
      ${javascript}/highlight.js/highlight.min.js ${javascript}/highlight.js/highlight.js)
    tokamak_page_library(TOKAMAK_KATEX_JS libjs-katex ${javascript}/katex/katex.min.js)
    # KaTeX's style sheet, and the folder of the fonts that it names.
    get_filename_component(katex ${TOKAMAK_KATEX_JS} DIRECTORY)
    file(GLOB fonts CONFIGURE_DEPENDS ${katex}/fonts/KaTeX_*.woff2)
    if(NOT EXISTS ${katex}/katex.min.css OR NOT fonts)
      message(FATAL_ERROR "katex.min.css and fonts/KaTeX_*.woff2 are not beside ${TOKAMAK_KATEX_JS}. "
        "On Debian: apt-get install libjs-katex fonts-katex. Elsewhere let TOKAMAK_KATEX_JS name the "
        "script in a complete copy of KaTeX's release.")
    endif()
    file(GLOB files CONFIGURE_DEPENDS ${folder}/*.html ${folder}/*.css ${folder}/*.js
         ${folder}/*.svg)
    foreach(file ${files})
      get_filename_component(name ${file} NAME)
      list(APPEND assets /page/${name}=${file})
    endforeach()
    list(TRANSFORM assets REPLACE "^/page/index\\.html=" "/=")
    list(APPEND assets /page/lib/marked.js=${TOKAMAK_MARKED_JS}
                       /page/lib/purify.js=${TOKAMAK_PURIFY_JS}
                       /page/lib/highlight.js=${TOKAMAK_HIGHLIGHT_JS}
                       /page/lib/katex.js=${TOKAMAK_KATEX_JS}
                       /page/lib/katex.css=${katex}/katex.min.css)
    foreach(font ${fonts})
      get_filename_component(name ${font} NAME)
      list(APPEND assets /page/lib/fonts/${name}=${font})
    endforeach()
    set(notices ${TOKAMAK_MARKED_JS_NOTICE} ${TOKAMAK_PURIFY_JS_NOTICE}
                ${TOKAMAK_HIGHLIGHT_JS_NOTICE} ${TOKAMAK_KATEX_JS_NOTICE})
    set(inputs ${assets} ${notices})
    list(TRANSFORM inputs REPLACE "^[^=]*=" "")
  endif()
  set(script ${CMAKE_SOURCE_DIR}/cmake/EmbedPage.cmake)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} "-DASSETS=${assets}" "-DNOTICES=${notices}"
            -DLICENSE=${CMAKE_SOURCE_DIR}/LICENSE -DGZIP=${TOKAMAK_GZIP} -P ${script}
    DEPENDS ${inputs} ${script} ${CMAKE_SOURCE_DIR}/LICENSE
    COMMENT "Embedding the web page" VERBATIM)
endfunction()
