// Deletes an object twice.
struct object {
  char bytes[100];
};

int main() {
  object *volatile one = new object;
  delete one;
  delete one;
}
