from hakmem.app import main

main()
