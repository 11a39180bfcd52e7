"""`make demo`, which is `dpsql demo`: a small synthetic shop is asked private questions."""

from dpsql.demo import main

if __name__ == "__main__":
    main()
