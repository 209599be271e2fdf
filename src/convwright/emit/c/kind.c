/* ---- This problem: the properties that all sizes share ---- */

/*@kind@*/
