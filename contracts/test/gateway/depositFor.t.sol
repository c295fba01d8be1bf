// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Balances} from "../../src/gateway/Balances.sol";
import {Deposits} from "../../src/gateway/Deposits.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {GatewayTest} from "../support/GatewayTest.sol";
import {vm} from "../support/Vm.sol";

contract DepositForTest is GatewayTest {
    function test_aDepositForSomeoneIsTheirs(uint256 value) public {
        value = _bound(value, 1, usdc.FAUCET_VALUE_MAX());
        _fund(bob, value);

        vm.expectEmit(address(gateway));
        emit Deposits.Deposited(USDC_ADDRESS, alice.addr, bob.addr, value);
        vm.prank(bob.addr);
        gateway.depositFor(USDC_ADDRESS, alice.addr, value);

        vm.assertEq(_available(alice.addr), value);
        vm.assertEq(_total(bob.addr), 0);
        vm.assertEq(usdc.balanceOf(bob.addr), 0);
    }

    function test_aDepositForNobodyIsRefused() public {
        _fund(bob, USDC);
        vm.startPrank(bob.addr);
        vm.expectRevert(abi.encodeWithSelector(Deposits.DepositorInvalid.selector, address(0)));
        gateway.depositFor(USDC_ADDRESS, address(0), USDC);
        vm.expectRevert(abi.encodeWithSelector(Deposits.DepositorInvalid.selector, address(gateway)));
        gateway.depositFor(USDC_ADDRESS, address(gateway), USDC);
        vm.expectRevert(Deposits.DepositValueZero.selector);
        gateway.depositFor(USDC_ADDRESS, alice.addr, 0);
        vm.expectRevert(abi.encodeWithSelector(Balances.UnsupportedToken.selector, alice.addr, USDC_ADDRESS));
        gateway.depositFor(alice.addr, alice.addr, USDC);
        vm.stopPrank();
    }

    function test_nothingIsTakenWhilePaused() public {
        _fund(bob, USDC);
        _pause();
        vm.expectRevert(Pausable.EnforcedPause.selector);
        vm.prank(bob.addr);
        gateway.depositFor(USDC_ADDRESS, alice.addr, USDC);
    }

    // Money credited to a blocked address could not come out again. So Mallory cannot lock Bob's money up by giving him
    // a blocked deposit address.
    function test_attack_aBlockedDepositorIsRefused() public {
        _fund(bob, USDC);
        vm.prank(blacklister);
        usdc.blacklist(mallory.addr);

        vm.expectRevert(abi.encodeWithSelector(Deposits.DepositorBlacklisted.selector, mallory.addr));
        vm.prank(bob.addr);
        gateway.depositFor(USDC_ADDRESS, mallory.addr, USDC);
        vm.assertEq(usdc.balanceOf(bob.addr), USDC);
    }

    // Mallory may credit Alice, and even restart nothing of hers: a deposit leaves a withdrawal under way as it is.
    function test_attack_dustFromAStrangerDoesNotDelayAWithdrawal() public {
        _deposit(alice, 10 * USDC);
        _initiateWithdrawal(alice, 10 * USDC);
        uint256 due = gateway.withdrawalBlock(USDC_ADDRESS, alice.addr);

        vm.roll(due - 1);
        _fund(mallory, 1);
        vm.prank(mallory.addr);
        gateway.depositFor(USDC_ADDRESS, alice.addr, 1);

        vm.roll(due);
        _withdraw(alice);
        vm.assertEq(usdc.balanceOf(alice.addr), 10 * USDC);
        vm.assertEq(_available(alice.addr), 1);
    }
}
