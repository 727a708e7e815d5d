/* spans.c - an extension of CPython that sometimes forgets what it has allocated: spans.cut(text) -> a list of words. */
#include <Python.h>
#include <string.h>

/* A copy that may be cut to pieces. */
static char *copy_of(const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = malloc(bytes);
  return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

static PyObject *cut(PyObject *module, PyObject *argument) {
  (void)module;
  const char *text = PyUnicode_AsUTF8(argument);
  if (text == NULL) return NULL;
  char *copy = copy_of(text), *rest = copy;
  if (copy == NULL) return PyErr_NoMemory();
  PyObject *words = PyList_New(0);
  for (char *word; words != NULL && (word = strsep(&rest, " ")) != NULL;) {
    if (*word == '\0') return words; /* two spaces: done, and the copy is lost */
    PyObject *one = PyUnicode_FromString(word);
    if (one == NULL || PyList_Append(words, one) != 0) Py_CLEAR(words);
    Py_XDECREF(one);
  }
  free(copy);
  return words;
}

static PyMethodDef methods[] = {{"cut", cut, METH_O, "The words of a text, up to two spaces."}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "spans", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_spans(void) { return PyModule_Create(&definition); }
